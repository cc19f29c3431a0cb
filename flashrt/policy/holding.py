"""What is held, and what gives way: out of a full tier, what is worth least there moves on.

From the engine's memory into the host's, from there into its file, and behind that it is gone.
What goes first: tails that an edit cut off, then what is cheap to compute again for the bytes that
it frees (GreedyDual-Size: Cao and Irani, 1997), the longer unused the cheaper. Each tier ages by
itself. A copy that fails costs time later and nothing else (G8).
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from flashrt.engine.protocol import Capsule, Carrier
from flashrt.fsm.capsule import CapsuleEvent
from flashrt.policy.capsule_index import CapsuleIndex
from flashrt.policy.entries import Copies, Entry, FileState
from flashrt.policy.filing import Filer
from flashrt.policy.tiers import Part, Tier, Tiers, held_bytes

Buffers = Mapping[str, Any]


class Holding:
    """The entries of a store, the tiers they lie in, and the moves down. Engine thread only."""

    def __init__(self, tiers: Tiers, carrier: Carrier | None, filer: Filer | None) -> None:
        self.counts: Counter[str] = Counter()
        self._tiers = tiers
        self._carrier = carrier
        self._filer = filer
        self._index = CapsuleIndex()
        self._clocks = dict.fromkeys(Tier, 0.0)
        self._leaving: list[Entry] = []
        self._pins = 0
        self._keep: Collection[Entry] = ()

    @property
    def moves(self) -> int:
        """How often something gave way: who has weighed a newcomer weighs it again."""
        return sum(self.counts[name] for name in ("evicted", "offloaded", "released"))

    def evict_lru(self, keep: Collection[Entry] = ()) -> Entry | None:
        """Move the entry that is worth least out of the engine's memory; None: nothing may go."""
        if self._leaving:
            entry = self._leaving[0]
            self._land(entry)
            return entry
        self._keep = keep
        try:
            return self._evict(Tier.DEVICE)
        finally:
            self._keep = ()

    def make_room(self, need_bytes: int, keep: Collection[Entry] = ()) -> bool:
        """Evict until `need_bytes` more fit; whether they do. `keep` stays.

        Where they cannot fit, whatever may go, nothing goes.
        What goes may take rows with it that the newcomer would have shared: weigh it again.
        """
        budget, used = self._tiers.budgets[Tier.DEVICE], self._tiers.used
        if held_bytes(self._staying(keep)) + need_bytes > budget:
            self.counts["declined"] += 1
            return False
        while used[Tier.DEVICE] + need_bytes > budget:
            if self.evict_lru(keep) is None:
                self.counts["declined"] += 1
                return False
        return True

    @contextmanager
    def guarding(self, capsule: Capsule) -> Iterator[None]:
        """While room is made for a newcomer, the rows that it shares stay where they lie."""
        parts: list[Part] = []
        try:
            with self._tiers.guarded(capsule) as parts:
                yield
        finally:
            self._sink(parts)

    def settle(self, headroom_bytes: int = 0) -> None:
        """Between two requests: end copies that are whole, and begin some for room that will be
        wanted soon."""
        for entry in list(self._leaving):
            if entry.leaving and all(copy.done for _, copy in entry.leaving):
                self._land(entry)
        free = self._tiers.budgets[Tier.DEVICE] - self._tiers.used[Tier.DEVICE]
        free += sum(_bytes(entry.leaving) for entry in self._leaving)
        while free < headroom_bytes:
            cheapest = self._cheapest(Tier.DEVICE)
            copies = None if cheapest is None else self._begin_copy(cheapest)
            if copies is None:
                return
            free += _bytes(copies)

    def _staying(self, keep: Collection[Entry] = ()) -> list[Capsule]:
        """The capsules that no eviction takes from the device."""
        here = [e for e in self._index.entries.values() if e.tier is Tier.DEVICE]
        return [e.capsule for e in here if e.pinned or e in keep]

    # -- what gives way ----------------------------------------------------------------------------

    def _evict(self, tier: Tier) -> Entry | None:
        entry = self._cheapest(tier)
        if entry is None:
            return None
        if not entry.first_to_go:
            self._clocks[tier] = max(self._clocks[tier], self._worth(entry))
        self._move_down(entry)
        return entry

    def _cheapest(self, tier: Tier) -> Entry | None:
        here = [e for e in self._index.entries.values() if e.tier is tier and e.leaving is None]
        may_go = [e for e in here if not e.pinned and e not in self._keep]
        return min(may_go, key=lambda e: (not e.first_to_go, self._worth(e)), default=None)

    def _worth(self, entry: Entry) -> float:
        """Tokens that the entry saves for each MiB that it holds alone, from its last use on."""
        mib = self._tiers.alone_bytes(entry) / 2**20
        return entry.used_at + entry.cost / max(mib, 1e-9)

    def _move_down(self, entry: Entry) -> None:
        """To the next tier that takes it."""
        if entry.tier is Tier.DEVICE and self._begin_copy(entry) is not None:
            self._land(entry)
        else:
            self._release(entry)

    def _release(self, entry: Entry) -> None:
        """Its buffers go; its file stays, if it has one."""
        if entry.tier is not Tier.DISK and self._is_filed(entry):
            self.counts["released"] += 1
            self._leave(entry, CapsuleEvent.RELEASE, Tier.DISK)
        else:
            self.counts["evicted"] += 1
            self._remove(entry, CapsuleEvent.EVICT)

    def _leave(self, entry: Entry, event: CapsuleEvent, tier: Tier) -> None:
        """The entry sits in a slower tier now, and so do the rows that nobody else wants here."""
        entry.machine.fire(event)
        self._tiers.seat(entry, tier)
        entry.used_at = self._clocks[tier]
        self._sink(self._tiers.parts(entry))

    def _remove(self, entry: Entry, event: CapsuleEvent) -> None:
        self._pins -= entry.pinned
        entry.machine.fire(event)
        self._cancel_copy(entry)
        if self._filer is not None:
            self._filer.forget(entry, self._index.entries.values())
        self._index.remove(entry)
        rows = self._tiers.rows(entry)
        self._tiers.seat(entry, None)
        self._sink(rows)

    # -- copies in host memory ---------------------------------------------------------------------

    def _begin_copy(self, entry: Entry) -> Copies | None:
        """Begin to copy what nobody else wants on the device; None: the host does not take it."""
        parts = [
            part
            for part in self._tiers.parts(entry)
            if part.lies is Tier.DEVICE and part.users[Tier.DEVICE] == 1
        ]
        size = self._on_host(parts)
        if self._carrier is None or not self._room_on_host(size):
            return None
        try:
            copies = [(part, self._carrier.to_host(part.owner.buffers)) for part in parts]
        except Exception:
            self.counts["copy_faults"] += 1
            return None
        entry.machine.fire(CapsuleEvent.OFFLOAD)
        self._tiers.used[Tier.HOST] += size  # taken before anything lies there
        entry.leaving = copies
        self._leaving.append(entry)
        return copies

    def _cancel_copy(self, entry: Entry) -> Copies:
        """What was copied of it, which takes no room any more."""
        copies, entry.leaving = entry.leaving or [], None
        if entry in self._leaving:
            self._leaving.remove(entry)
        self._tiers.used[Tier.HOST] -= self._on_host(part for part, _ in copies)
        return copies

    def _land(self, entry: Entry) -> None:
        """Wait for its copies, and let go of what they are copies of."""
        copies = self._cancel_copy(entry)
        try:
            whole = [(part, copy.wait()) for part, copy in copies]
        except Exception:
            self.counts["copy_faults"] += 1
            self._release(entry)
            return
        self.counts["offloaded"] += 1
        entry.machine.fire(CapsuleEvent.COPIED)
        self._tiers.seat(entry, Tier.HOST)
        entry.used_at = self._clocks[Tier.HOST]
        for part, buffers in whole:
            if part.wanted is Tier.HOST and part.lies is Tier.DEVICE:
                self._tiers.place(part, Tier.HOST, buffers)
        self._sink(self._tiers.rows(entry))

    def _sink(self, parts: Iterable[Part]) -> None:
        """Parts that lie faster than anybody wants them move down, or their users lose them."""
        for part in parts:
            wanted = part.wanted
            if wanted is Tier.DISK and part.lies is not Tier.DISK:
                self._tiers.place(part, Tier.DISK, {})
            elif wanted is Tier.HOST and part.lies is Tier.DEVICE:
                self._sink_to_host(part)

    def _sink_to_host(self, part: Part) -> None:
        fits = self._room_on_host(self._on_host([part]))
        if part.wanted is not Tier.HOST:  # to make room, its own users may have gone
            self._sink([part])
            return
        buffers = self._copied(part) if fits else None
        if buffers is not None:
            self._tiers.place(part, Tier.HOST, buffers)
            return
        for entry in list(self._index.entries.values()):
            if entry.tier is Tier.HOST and part in self._tiers.rows(entry):
                self._lose(entry)

    def _lose(self, entry: Entry) -> None:
        """Rows of it are lost to the host's memory."""
        if entry.pinned:
            self.counts["damaged"] += 1
            self._remove(entry, CapsuleEvent.DAMAGE)
        else:
            self._release(entry)

    def _copied(self, part: Part) -> Buffers | None:
        assert self._carrier is not None, "nothing sits on the host without a carrier"
        try:
            return self._carrier.to_host(part.owner.buffers).wait()
        except Exception:
            self.counts["copy_faults"] += 1
            return None

    def _on_host(self, parts: Iterable[Part]) -> int:
        """Bytes that they take there."""
        return sum(self._tiers.taken_bytes(part, Tier.HOST) for part in parts)

    def _room_on_host(self, size: int) -> bool:
        """Make room there; whether there is."""
        budget, used = self._tiers.budgets[Tier.HOST], self._tiers.used
        held = {p for e in self._index.entries.values() if e.pinned for p in self._tiers.parts(e)}
        staying = self._on_host(part for part in held if part.lies is Tier.HOST)
        if size + staying > budget:
            return False
        while used[Tier.HOST] + size > budget:
            if self._evict(Tier.HOST) is None:
                return False
        return True

    # -- files -------------------------------------------------------------------------------------

    def _is_filed(self, entry: Entry) -> bool:
        """Whether its file is whole, now or after a short while."""
        if self._filer is not None and entry.file is FileState.BEGUN:
            self._filer.wait(entry)
            self._note_deliveries()
        return entry.file is FileState.WHOLE

    def _note_deliveries(self) -> None:
        """What the writer has done since: files that are whole, and others that went for them."""
        if self._filer is None:
            return
        for entry in self._filer.collect(self._index.entries):
            if entry.tier is Tier.DISK:
                self.counts["evicted"] += 1
                self._remove(entry, CapsuleEvent.EVICT)


def _bytes(copies: Copies | None) -> int:
    return sum(part.size_bytes for part, _ in copies or ())
