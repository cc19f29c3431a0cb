"""Which memory holds what: states and blocks of rows, each in one tier, counted once."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from enum import Enum
from typing import Any, Protocol

import attrs

from flashrt.engine.protocol import Capsule, RowBlock
from flashrt.fsm.capsule import CapsuleState


class Tier(Enum):
    """Where buffers lie, fastest first. On DISK: in files only."""

    DEVICE = "device"
    HOST = "host"
    DISK = "disk"


TIER_OF: Mapping[CapsuleState, Tier] = {
    CapsuleState.DEVICE: Tier.DEVICE,
    CapsuleState.PINNED: Tier.DEVICE,
    CapsuleState.LEAVING: Tier.DEVICE,
    CapsuleState.HOST: Tier.HOST,
    CapsuleState.HELD: Tier.HOST,
    CapsuleState.DISK: Tier.DISK,
}


class Owner(Protocol):
    """What a part's buffers are buffers of: an entry of the store, or a block of rows."""

    buffers: Mapping[str, Any]
    block_bytes: int


@attrs.define(eq=False)
class Part:
    """A state or a block of rows: what is moved as a whole. `users` counts entries by their tier.

    `file`: the name of a block that is filed.
    """

    owner: Owner
    size_bytes: int
    lies: Tier
    users: Counter[Tier] = attrs.field(factory=Counter)
    file: str | None = None

    @property
    def wanted(self) -> Tier | None:
        """The fastest tier of its users; None: it has none."""
        return next((tier for tier in Tier if self.users[tier]), None)


class Seated(Protocol):
    """An entry as far as tiers are concerned. `part` is its state's, `tier` where it sits."""

    tier: Tier | None
    part: Part | None
    buffers: Mapping[str, Any]
    block_bytes: int

    @property
    def capsule(self) -> Capsule: ...


class Tiers:
    """All parts. `used` counts bytes by the tier in which they lie, `seats` entries."""

    def __init__(
        self, device_bytes: int, host_bytes: int = 0, rounded: Callable[[int], int] = int
    ) -> None:
        """`rounded`: what a part of so many bytes takes on the host, see `Carrier.host_bytes`."""
        self._rounded = rounded
        self.budgets = {Tier.DEVICE: device_bytes, Tier.HOST: host_bytes}
        self.used: Counter[Tier] = Counter()
        self.seats: Counter[Tier] = Counter()
        self._rows: dict[RowBlock, Part] = {}

    def taken_bytes(self, part: Part, tier: Tier) -> int:
        """What a part takes where it lies, or would take there."""
        return self._rounded(part.size_bytes) if tier is Tier.HOST else part.size_bytes

    def part(self, block: RowBlock) -> Part | None:
        """The part of a block, if any entry refers to it."""
        return self._rows.get(block)

    def rows(self, entry: Seated) -> list[Part]:
        """The parts of its rows."""
        return [self._rows[block] for block in entry.capsule.rows]

    def parts(self, entry: Seated) -> list[Part]:
        """All parts of an entry that sits somewhere."""
        assert entry.part is not None, "an entry that is gone has no parts"
        return [entry.part, *self.rows(entry)]

    def admit(self, entry: Seated, tier: Tier, lies: Tier) -> None:
        """A new entry sits in `tier`; those of its buffers that are new here lie in `lies`."""
        entry.part = Part(entry, entry.capsule.state_bytes, lies)
        self.used[lies] += self.taken_bytes(entry.part, lies)
        for block in entry.capsule.rows:
            if block not in self._rows:
                part = self._rows[block] = Part(block, block.block_bytes, lies)
                self.used[lies] += self.taken_bytes(part, lies)
        self.seat(entry, tier)

    def seat(self, entry: Seated, tier: Tier | None) -> None:
        """The entry sits in another tier now, or in none. Its parts lie where they lay."""
        parts = self.parts(entry)
        for part in parts:
            if entry.tier is not None:
                part.users[entry.tier] -= 1
            if tier is not None:
                part.users[tier] += 1
        if entry.tier is not None:
            self.seats[entry.tier] -= 1
        entry.tier = tier
        if tier is None:
            self._forget(entry, parts)
        else:
            self.seats[tier] += 1

    @contextmanager
    def guarded(self, capsule: Capsule) -> Iterator[list[Part]]:
        """Rows that a newcomer shares stay where they lie until it sits, or is given up."""
        known = {block: self._rows[block] for block in capsule.rows if block in self._rows}
        for part in known.values():
            part.users[Tier.DEVICE] += 1
        try:
            yield list(known.values())
        finally:
            for block, part in known.items():
                part.users[Tier.DEVICE] -= 1
                if part.wanted is None:
                    self.used[part.lies] -= self.taken_bytes(part, part.lies)
                    del self._rows[block]

    def place(self, part: Part, tier: Tier, buffers: Mapping[str, Any]) -> None:
        """The part lies in `tier` now, with equal buffers."""
        self.used[part.lies] -= self.taken_bytes(part, part.lies)
        part.lies, part.owner.buffers = tier, buffers
        self.used[tier] += self.taken_bytes(part, tier)

    def fetched(self, part: Part, buffers: Mapping[str, Any], size_bytes: int) -> None:
        """Its buffers were read; before, only the size of its file was known."""
        self.used[part.lies] += size_bytes - part.size_bytes
        part.size_bytes = part.owner.block_bytes = size_bytes
        part.owner.buffers = buffers

    def alone_bytes(self, entry: Seated) -> int:
        """What its tier would have more room for, if it left."""
        tier = entry.tier
        mine = (p for p in self.parts(entry) if p.lies is tier)
        alone = (part for part in mine if tier and part.users[tier] == 1)
        return sum(self.taken_bytes(part, part.lies) for part in alone)

    def added_bytes(self, capsule: Capsule) -> int:
        """What a newcomer would add to the device: its state, and rows that do not lie there."""
        parts = ((block, self._rows.get(block)) for block in capsule.rows)
        new = (b for b, part in parts if part is None or part.lies is not Tier.DEVICE)
        return capsule.state_bytes + sum(block.block_bytes for block in new)

    def _forget(self, entry: Seated, parts: Iterable[Part]) -> None:
        for part in parts:
            if part.wanted is None:
                self.used[part.lies] -= self.taken_bytes(part, part.lies)
        for block in entry.capsule.rows:
            if self._rows[block].wanted is None:
                del self._rows[block]
        entry.part = None  # it refers to the entry: a circle would keep its buffers for a while


def held_bytes(capsules: Iterable[Capsule]) -> int:
    """Bytes of several capsules, shared rows counted once."""
    capsules = list(capsules)
    blocks = {block for capsule in capsules for block in capsule.rows}
    return sum(c.state_bytes for c in capsules) + sum(block.block_bytes for block in blocks)
