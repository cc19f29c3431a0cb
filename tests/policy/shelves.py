"""A shelf in memory: it writes when it is told to, and fails when it is told to."""

from collections import Counter

import attrs

from flashrt.disk.filed import FiledRow
from flashrt.errors import DiskFault
from flashrt.policy.shelf import Delivered, Unpacked


class MemoryShelf:
    """Files as dictionaries. `faults`: the next call of that name fails."""

    def __init__(self, budget_bytes=None, at_once=True):
        self.budget_bytes = budget_bytes
        self.at_once = at_once
        self.faults = Counter()
        self.files = {}
        self.blocks = {}
        self.waiting = []
        self._done = []

    # -- the protocol ------------------------------------------------

    @property
    def busy(self):
        return bool(self.waiting or self._done)

    def manifest_bytes(self, position, /):
        return 0

    def takes(self, size_bytes, /):
        return len(self.waiting) < 3

    def put(self, parcel, /):
        self.waiting.append(parcel)
        if self.at_once:
            self.write()

    def delivered(self):
        done, self._done = self._done, []
        return iter(done)

    def wait(self, number, /):
        if not self._fails("wait"):
            self.write()

    def read(self, key, known, /):
        if self._fails("read") or key not in self.files:
            raise DiskFault(f"{key} cannot be read")
        _, state, names = self.files[key]
        rows = tuple(None if name in known else self.blocks[name] for name in names)
        return Unpacked(state, rows)

    def delete(self, key, /):
        self.write()
        self.files.pop(key, None)
        self._sweep()

    def report(self):
        return {"count": len(self.files), "bytes": self.size, "budget_bytes": self.budget_bytes}

    # -- what a test does --------------------------------------------

    @property
    def size(self):
        states = (state for _, state, _ in self.files.values())
        return sum(map(_size, [*states, *self.blocks.values()]))

    def write(self):
        """All that waits, or fail."""
        for parcel in self.waiting:
            self._done.append(self._written(parcel))
        self.waiting.clear()

    def restart(self):
        """Another process: what was not written is lost."""
        self.waiting.clear()
        self._done.clear()

    def filed(self):
        """As a directory tells it after a start, newest first."""
        return (filed for filed, _, _ in reversed(self.files.values()))

    # -- inside ------------------------------------------------------

    def _written(self, parcel):
        key = parcel.filed.key
        if self._fails("write"):
            return Delivered(parcel.number, fault="no space left on device")
        names = []
        for number, (packed, row) in enumerate(parcel.rows):
            if isinstance(row, str):
                if row not in self.blocks:
                    return Delivered(parcel.number, fault=f"there is no block {row}")
                names.append(row)
            else:
                copy = _copied(row)
                name = f"{number} {packed.hex()} {sorted((n, b.data) for n, b in copy.items())}"
                self.blocks[name] = copy
                names.append(name)
        rows = tuple(
            FiledRow(packed, name, _size(self.blocks[name]))
            for (packed, _), name in zip(parcel.rows, names, strict=True)
        )
        filed = _evolved(parcel.filed, rows, _size(parcel.state))
        self.files.pop(key, None)
        self.files[key] = (filed, _copied(parcel.state), names)
        return Delivered(parcel.number, tuple(names), gone=tuple(self._make_room(key)))

    def _make_room(self, keep):
        while self.budget_bytes is not None and self.size > self.budget_bytes:
            key = next(iter(self.files))
            del self.files[key]
            self._sweep()
            yield key
            if key == keep:
                return

    def _sweep(self):
        used = {name for _, _, names in self.files.values() for name in names}
        self.blocks = {name: block for name, block in self.blocks.items() if name in used}

    def _fails(self, name):
        if self.faults[name]:
            self.faults[name] -= 1
            return True
        return False


def _size(raw):
    return sum(len(bytes(buffer.data)) for buffer in raw.values())


def _copied(raw):
    return {name: attrs.evolve(b, data=bytes(b.data)) for name, b in raw.items()}


def _evolved(filed, rows, state_bytes):
    return attrs.evolve(filed, rows=rows, state_bytes=state_bytes)
