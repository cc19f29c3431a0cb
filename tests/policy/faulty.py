"""A fake engine whose copies take time, and fail when a test says so."""

import weakref
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
        self.refused = 0
        """Copies that found no room though no fault was planned."""

    def to_host(self, buffers, /):
        if self._fails("to_host"):
            raise MemoryError("a planned want of host memory")
        try:
            return self._slow(super().to_host(buffers))
        except MemoryError:
            self.refused += 1
            raise

    def for_file(self, buffers, /):
        if self._fails("to_host"):
            raise MemoryError("a planned want of host memory")
        return self._slow(super().for_file(buffers))

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
        for ref in self.under_way:
            if (copy := ref()) is not None:
                copy.done = True
        self.under_way.clear()

    def _slow(self, copy):
        slow = SlowCopy(copy.wait(), self._fails("copy"))
        self.under_way.append(weakref.ref(slow))
        return slow

    def _fails(self, name):
        fails = self.faults[name] > 0
        self.faults[name] -= fails
        return fails
