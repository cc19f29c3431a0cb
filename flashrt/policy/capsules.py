"""The capsule store: which states are kept, found by full token lists, within a budget per tier.

Rows that capsules share are held once and counted once. `flashrt.policy.holding` says what gives
way to what, `flashrt.policy.filing` what is written to disk.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from flashrt.disk.filed import Filed
from flashrt.engine.protocol import Capsule, Carrier, RowBlock
from flashrt.fsm.capsule import CapsuleEvent
from flashrt.policy.entries import Entry, FileState, Refusal, key_of
from flashrt.policy.filing import Filer, entry_of
from flashrt.policy.lineage import Lineage
from flashrt.policy.raising import Raising
from flashrt.policy.shelf import Shelf
from flashrt.policy.spacing import Kind
from flashrt.policy.tiers import Part, Tier, Tiers, held_bytes

COUNTS = (
    *("stored", "evicted", "declined", "thinned", "damaged"),
    *("offloaded", "released", "promoted", "filed", "found", "unfiled"),
    *("copy_faults", "file_faults"),
)
"""What became of capsules. `offloaded` to the host, `released` to their files, `promoted` back."""

Filled = Mapping[RowBlock, Mapping[str, Any]]

NO_FILES: Mapping[str, object] = {"count": 0, "bytes": 0, "budget_bytes": 0}


class CapsuleStore(Raising):
    """All capsules of all namespaces. Engine thread only."""

    def __init__(
        self,
        budget_bytes: int,
        host_budget_bytes: int = 0,
        carrier: Carrier | None = None,
        shelf: Shelf | None = None,
    ) -> None:
        """Without a `carrier` nothing can be moved, and there is one tier."""
        tiers, filer = Tiers(budget_bytes), None
        if carrier is not None:
            tiers = Tiers(budget_bytes, host_budget_bytes, carrier.host_bytes)
        if carrier is not None and shelf is not None:
            filer = Filer(shelf, carrier, tiers)
        super().__init__(tiers, carrier, filer)

    # -- what is there -----------------------------------------------------------------------------

    @property
    def budget_bytes(self) -> int:
        """Of the engine's memory."""
        return self._tiers.budgets[Tier.DEVICE]

    @budget_bytes.setter
    def budget_bytes(self, budget_bytes: int) -> None:
        self._tiers.budgets[Tier.DEVICE] = budget_bytes

    def get(self, key: str) -> Entry | None:
        """The entry of that key."""
        return self._index.entries.get(key)

    def entries(self) -> tuple[Entry, ...]:
        """All entries, oldest first."""
        return tuple(self._index.entries.values())

    def of_session(self, session: str) -> tuple[Entry, ...]:
        """The entries that a session has made, oldest first."""
        return tuple(e for e in self._index.entries.values() if e.session == session)

    def find(self, namespace: str, packed: bytes, at_most: int | None = None) -> Entry | None:
        """The deepest entry whose processed ids are the first of `packed` (see `pack_ids`)."""
        return next(self._index.heading(namespace, packed, at_most), None)

    def path(self, namespace: str, packed: bytes) -> list[Entry]:
        """All entries whose processed ids are the first of `packed`, deepest first."""
        return list(self._index.heading(namespace, packed))

    def reaching(self, namespace: str, packed: bytes, beyond: int) -> Iterator[Entry]:
        """As `path`, those beyond so many ids, and none behind the first on the device: what is
        neither deeper nor faster than another is of no use."""
        for entry in self._index.heading(namespace, packed):
            if entry.position <= beyond:
                return
            yield entry
            if entry.tier is Tier.DEVICE:
                return

    def has(self, namespace: str, packed: bytes, position: int) -> Entry | None:
        """The entry that stands for exactly the first `position` ids of `packed`."""
        found = self.find(namespace, packed, position)
        return found if found is not None and found.position == position else None

    def footprint(self) -> int:
        """Bytes held in the engine's memory: every state, and every block of rows once."""
        return self._tiers.used[Tier.DEVICE]

    def host_footprint(self) -> int:
        """The same in the host's memory, with the room for copies that are being made."""
        return self._tiers.used[Tier.HOST]

    def report(self) -> dict[str, object]:
        """For /health."""
        files = NO_FILES if self._filer is None else self._filer.shelf.report()
        counts = self.counts if self._filer is None else self.counts + self._filer.counts
        return {
            "count": len(self._index.entries),
            "bytes": self._tiers.used[Tier.DEVICE],
            "budget_bytes": self.budget_bytes,
            "pinned": self._pins,
            "device_count": self._tiers.seats[Tier.DEVICE],
            "host_count": self._tiers.seats[Tier.HOST],
            "host_bytes": self._tiers.used[Tier.HOST],
            "host_budget_bytes": self._tiers.budgets[Tier.HOST],
            "disk_count": 0 if self._filer is None else self._filer.whole,
            "disk_bytes": files["bytes"],
            "disk_budget_bytes": files["budget_bytes"] or 0,
            **{name: counts[name] for name in COUNTS},
        }

    def kinds(self) -> dict[str, int]:
        """How many entries there are of each kind."""
        return {kind.value: self._index.kinds[kind] for kind in Kind}

    # -- what comes and goes -----------------------------------------------------------------------

    def put(
        self,
        capsule: Capsule,
        *,
        namespace: str,
        session: str,
        kind: Kind,
        turn: int,
        lineage: Lineage,
        filled: Filled | None = None,
    ) -> Entry | None:
        """Keep a capsule, evicting others for it. None: it does not fit, whatever may go.

        A boundary that is kept already stays as it is, and counts as used. `filled`: buffers on the
        device for rows that it shares and that lie elsewhere, see `away`.
        """
        key = key_of(namespace, capsule)
        known = self._index.entries.get(key)
        if known is not None:
            self.use(known)
            return known
        entry = Entry(key, capsule, namespace, session, kind, turn, lineage)
        if held_bytes([*self._staying(), capsule]) > self.budget_bytes:
            return self._put_on_host(entry, filled or {})
        while self._tiers.used[Tier.DEVICE] + self._tiers.added_bytes(capsule) > self.budget_bytes:
            gone = self.evict_lru()
            assert gone is not None, "bytes are counted that nobody holds"
        filled = filled or {}
        away = self.away(capsule)
        if not all(block in filled for block in away):
            self._decline(entry)
            return None
        self._tiers.admit(entry, Tier.DEVICE, Tier.DEVICE)
        for block in away:
            self._tiers.place(self._part(block), Tier.DEVICE, filled[block])
        self._stored(entry, CapsuleEvent.STORE)
        return entry

    def added_bytes(self, capsule: Capsule) -> int:
        """What it would newly hold in the engine's memory."""
        return self._tiers.added_bytes(capsule)

    def away(self, capsule: Capsule, *, from_memory: bool = False) -> list[RowBlock]:
        """The known blocks of a capsule that do not lie on the device, or in no memory at all."""
        near = (Tier.DEVICE, Tier.HOST) if from_memory else (Tier.DEVICE,)
        known = [(block, self._tiers.part(block)) for block in capsule.rows]
        return [block for block, part in known if part is not None and part.lies not in near]

    def host_takes(self, need_bytes: int) -> bool:
        """Whether the host has room for what the engine's memory is too small for."""
        return 0 < need_bytes <= self._tiers.budgets[Tier.HOST]

    def shrink(self) -> bool:
        """Let go of half of what is held, because memory is short; whether anything went."""
        used, moves = self._tiers.used, self.moves
        aim = used[Tier.DEVICE] // 2
        while used[Tier.DEVICE] > aim and self.evict_lru() is not None:
            pass
        return self.moves > moves

    def drop(self, entry: Entry, *, damaged: bool = False) -> None:
        """Let go of an entry and of its file; of a pinned one only if it is damaged."""
        if self._index.entries.get(entry.key) is entry:
            self.counts["damaged" if damaged else "thinned"] += 1
            self._remove(entry, CapsuleEvent.DAMAGE if damaged else CapsuleEvent.EVICT)

    def use(self, entry: Entry) -> None:
        """The entry was restored, or its boundary was come by again."""
        self._cancel_copy(entry)
        entry.machine.fire(CapsuleEvent.USE)
        entry.first_to_go = False
        if self._index.entries.get(entry.key) is entry:
            assert entry.tier is not None
            self._index.move_to_end(entry)
            entry.used_at = self._clocks[entry.tier]
            if entry.file is FileState.GIVEN_UP:
                entry.file = FileState.NONE

    def pin(self, key: str, capsule: Capsule | None = None, *, budget_bytes: int) -> Refusal | None:
        """Pin the entry of `key`; None: done. All pins together may hold `budget_bytes`.

        `capsule`, if given, must be the entry's own.
        """
        entry = self._index.entries.get(key)
        if entry is None or capsule not in (None, entry.capsule):
            return Refusal("the state is not held any more")
        if entry.tier is Tier.DISK:
            return Refusal(
                "the state lies in a file only; a request that goes on from it brings it back into "
                "memory, where it can be pinned"
            )
        pinned = [e.capsule for e in self._index.entries.values() if e.pinned and e is not entry]
        need = held_bytes([*pinned, entry.capsule])
        if need > budget_bytes:
            return Refusal(
                f"the pinned states would hold {need / 2**20:.1f} MiB, but the limit is "
                f"{budget_bytes / 2**20:.1f} MiB (--capsule-budget-mb); let go of another pin with "
                "flashrt_pin_prefix false, or raise the limit"
            )
        if entry.leaving is not None:
            self.use(entry)
        self._pins += not entry.pinned
        entry.machine.fire(CapsuleEvent.PIN)
        return None

    def unpin(self, key: str) -> None:
        """The entry of `key`, if it is there, may go again."""
        entry = self._index.entries.get(key)
        if entry is not None:
            self._pins -= entry.pinned
            entry.machine.fire(CapsuleEvent.UNPIN)

    # -- files -------------------------------------------------------------------------------------

    def write_behind(self) -> bool:
        """Hand over what has no file yet, as far as that goes now; whether anything is left."""
        if self._filer is None:
            return False
        self._note_deliveries()
        left = self._filer.advance(self._index.entries.values())
        self._note_deliveries()
        return left or self._filer.busy

    def adopt(self, found: Iterable[Filed], identity: str, *, expired_before: float = 0.0) -> None:
        """Know the capsules whose files are there, newest first; at start.

        Files that were saved before `expired_before`, in seconds since the epoch, are deleted.
        """
        blocks: dict[str, RowBlock] = {}
        for filed in reversed(list(found)):
            if filed.saved_at < expired_before and self._filer is not None:
                self._filer.shelf.delete(filed.key)
                continue
            entry = entry_of(filed, identity, blocks)
            if key_of(entry.namespace, entry.capsule) != entry.key or self.get(entry.key):
                continue
            self._tiers.admit(entry, Tier.DISK, Tier.DISK)
            for part, row in zip(self._tiers.rows(entry), filed.rows, strict=True):
                part.file = row.name
            self._index.add(entry)
            self.counts["found"] += 1
            if self._filer is not None:
                self._filer.whole += 1

    # -- inside ------------------------------------------------------------------------------------

    def _stored(self, entry: Entry, event: CapsuleEvent) -> None:
        assert entry.tier is not None
        self._index.add(entry)
        entry.machine.fire(event)
        self.counts["stored"] += 1
        entry.used_at = self._clocks[entry.tier]

    def _decline(self, entry: Entry) -> None:
        entry.machine.fire(CapsuleEvent.DECLINE)
        self.counts["declined"] += 1

    def _part(self, block: RowBlock) -> Part:
        part = self._tiers.part(block)
        assert part is not None
        return part

    def _put_on_host(self, entry: Entry, filled: Filled) -> Entry | None:
        """Where the engine's memory is too small for it: a copy, and what was copied goes."""
        capsule = entry.capsule
        new = {block: block.buffers for block in capsule.rows if self._tiers.part(block) is None}
        fits = False
        if self._carrier is not None:
            sizes = (capsule.state_bytes, *(block.block_bytes for block in (*new, *filled)))
            fits = self._room_on_host(sum(map(self._carrier.host_bytes, sizes)))
        away = self.away(capsule, from_memory=True)
        if self._carrier is None or not fits or not all(block in filled for block in away):
            self._decline(entry)
            return None
        sources = {**new, **{block: filled[block] for block in away}}
        try:
            state = self._carrier.to_host(capsule.state).wait()
            copies = {b: self._carrier.to_host(source).wait() for b, source in sources.items()}
        except Exception:
            self.counts["copy_faults"] += 1
            self._decline(entry)
            return None
        entry.buffers = state
        self._tiers.admit(entry, Tier.HOST, Tier.HOST)
        for block, copy in copies.items():
            self._tiers.place(self._part(block), Tier.HOST, copy)
        self._stored(entry, CapsuleEvent.KEEP)
        return entry


__all__ = ["COUNTS", "CapsuleStore", "Entry", "Refusal", "key_of"]
