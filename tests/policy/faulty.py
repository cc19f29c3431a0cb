"""A fake engine whose copies take time, and fail when a test says so."""

from collections import Counter

import attrs

from flashrt.engine.fake import FakeEngine


@attrs.define(eq=False)
class SlowCopy:
    """A copy that is done when somebody waits, or when the walk says so; it may fail then."""

    buffers: dict
    fails: bool
    done: bool = False

    def wait(self):
        self.done = True
        if self.fails:
            raise RuntimeError("a planned fault of a copy")
        return self.buffers


class FaultyEngine(FakeEngine):
    """Copies that take time, and fail when they are begun, when they are awaited, or on the way
    back."""

    def __init__(self, **wish):
        super().__init__(**wish)
        self.faults = Counter()
        self.under_way = []

    def to_host(self, buffers, /):
        if self._fails("to_host"):
            raise MemoryError("a planned want of host memory")
        copy = SlowCopy(super().to_host(buffers).wait(), self._fails("copy"))
        self.under_way.append(copy)
        return copy

    def to_device(self, buffers, /):
        if self._fails("to_device"):
            raise MemoryError("a planned want of device memory")
        return super().to_device(buffers)

    def refill(self, block, /):
        if self._fails("refill"):
            raise MemoryError("a planned want of device memory")
        return super().refill(block)

    def from_bytes(self, raw, /):
        if self._fails("from_bytes"):
            raise ValueError("a planned fault of a file")
        return super().from_bytes(raw)

    def finish_copies(self):
        """All that is under way is whole now."""
        for copy in self.under_way:
            copy.done = True
        self.under_way.clear()

    def _fails(self, name):
        fails = self.faults[name] > 0
        self.faults[name] -= fails
        return fails
