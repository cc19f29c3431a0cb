"""The moves up: out of files, and back into the engine's memory, for what is restored."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from flashrt.errors import DiskFault
from flashrt.fsm.capsule import CapsuleEvent
from flashrt.policy.entries import Entry
from flashrt.policy.holding import Holding
from flashrt.policy.shelf import Unpacked
from flashrt.policy.tiers import Part, Tier, held_bytes


class Raising(Holding):
    """A store as a restore sees it. `flashrt.policy.lifting` has the steps."""

    def is_at_hand(self, entry: Entry) -> bool:
        """Whether all its buffers lie in some memory."""
        return all(part.lies is not Tier.DISK for part in self._tiers.parts(entry))

    def names_in_memory(self, entry: Entry) -> Collection[str]:
        """The row blocks of its file that need not be read."""
        rows = self._tiers.rows(entry)
        return {part.file for part in rows if part.file and part.lies is not Tier.DISK}

    def read(self, entry: Entry, known: Collection[str]) -> Unpacked:
        """Its file. Raises DiskFault."""
        if self._filer is None:
            raise DiskFault(f"capsule {entry.key} lies on disk, and there is no disk")
        return self._filer.shelf.read(entry.key, known)

    def fetched(self, entry: Entry, unpacked: Unpacked) -> None:
        """What was read is at hand until `landed`; no memory counts it as held before.

        Raises ValueError for buffers that are none of this engine's.
        """
        assert self._carrier is not None, "nothing lies on disk without a carrier"
        if len(unpacked.rows) != len(entry.capsule.rows):
            raise ValueError(f"{len(unpacked.rows)} blocks of rows in the file of {entry.key}")
        raws = (unpacked.state, *unpacked.rows)
        for part, raw in zip(self._tiers.parts(entry), raws, strict=True):
            if part.lies is Tier.DISK and raw is not None:
                size = sum(p.nbytes for buffer in raw.values() for p in buffer.pieces)
                self._tiers.fetched(part, self._carrier.from_bytes(raw), size)

    def make_room_for(self, entry: Entry) -> list[Part]:
        """Make room in the engine's memory; the parts to be brought there, none if it has none.

        What gives way may be rows of this entry, so it is weighed again until nothing has to.
        """
        if entry.tier is None or self._carrier is None:
            return []
        self._stay(entry)
        whole = held_bytes([*self._staying(), entry.capsule])
        while whole <= self._tiers.budgets[Tier.DEVICE]:
            apart = [part for part in self._tiers.parts(entry) if part.lies is not Tier.DEVICE]
            moves, need = self.moves, sum(part.size_bytes for part in apart)
            if not self.make_room(need, keep=(entry,)):
                return []
            if self.moves == moves:
                return apart
        return []

    def promoted(
        self, entry: Entry, parts: Sequence[Part], buffers: Sequence[Mapping[str, Any]]
    ) -> None:
        """The parts lie in the engine's memory now."""
        for part, moved in zip(parts, buffers, strict=True):
            self._tiers.place(part, Tier.DEVICE, moved)
        if entry.tier is not Tier.DEVICE:
            self.counts["promoted"] += 1
            entry.machine.fire(CapsuleEvent.PROMOTE)
            self._tiers.seat(entry, Tier.DEVICE)
            entry.used_at = self._clocks[Tier.DEVICE]

    def landed(self, entry: Entry) -> None:
        """What was read and could not be brought further stays on the host, or goes."""
        if entry.tier is None:
            return
        parts = self._tiers.parts(entry)
        read = [p for p in parts if p.lies is Tier.DISK and p.owner.buffers]
        fits = read and self._room_on_host(self._on_host(read))
        # To make room, rows that others had on the host may have gone from there.
        copies = []
        if fits and all(part.owner.buffers for part in parts):
            # What was read lies in memory that nobody has counted.
            copies = [copy for part in read if (copy := self._copied(part)) is not None]
        if read and len(copies) == len(read):
            for part, copy in zip(read, copies, strict=True):
                self._tiers.place(part, Tier.HOST, copy)
            if entry.tier is Tier.DISK:
                entry.machine.fire(CapsuleEvent.KEEP)
                self._tiers.seat(entry, Tier.HOST)
                entry.used_at = self._clocks[Tier.HOST]
        for part in read:
            if part.lies is Tier.DISK:
                part.owner.buffers = {}

    # -- inside ------------------------------------------------------------------------------------

    def _stay(self, entry: Entry) -> None:
        """If it was on its way out of the engine's memory, it is not any more."""
        if entry.leaving is not None:
            self._cancel_copy(entry)
            entry.machine.fire(CapsuleEvent.USE)
