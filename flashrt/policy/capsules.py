"""The capsule store: which states are kept, found by full token lists, within a byte budget.

Rows that capsules share are held once and counted once. What goes first: tails that an edit cut
off, then what is cheap to compute again for the bytes that it frees (GreedyDual-Size: Cao and
Irani, 1997), the longer unused the cheaper.
"""

import hashlib
import zlib
from collections import Counter
from collections.abc import Collection, Iterator

import attrs

from flashrt.engine.protocol import ID_BYTES, Capsule
from flashrt.fsm.capsule import CAPSULE, CapsuleEvent, CapsuleState
from flashrt.fsm.table import Machine
from flashrt.policy.lineage import Lineage
from flashrt.policy.spacing import Kind


@attrs.define(eq=False)
class Entry:
    """A capsule in the store. `key` names its namespace and processed ids.

    `session` made it, in its turn `turn`. `parent` is the deepest other entry that it begins with:
    from there its state would be computed again. `first_to_go`: an edit has cut it off.
    """

    key: str
    capsule: Capsule
    namespace: str
    session: str
    kind: Kind
    turn: int
    lineage: Lineage
    parent: "Entry | None" = None
    first_to_go: bool = False
    used_at: float = 0.0
    machine: Machine[CapsuleState, CapsuleEvent] = attrs.field(factory=lambda: Machine(CAPSULE))

    @property
    def position(self) -> int:
        """Ids that its state has processed."""
        return self.capsule.position

    @property
    def pinned(self) -> bool:
        """Whether it must stay."""
        return self.machine.state is CapsuleState.PINNED

    def begins_with(self, packed: bytes) -> bool:
        """Whether the first ids that its state has processed are `packed`."""
        return packed_of(self.capsule).startswith(packed)

    @property
    def cost(self) -> int:
        """Tokens to read again if it goes."""
        return self.position - (self.parent.position if self.parent is not None else 0)


@attrs.frozen
class Refusal:
    """Why a pin is refused, in words for the client."""

    reason: str


class CapsuleStore:
    """All capsules of all namespaces. Engine thread only."""

    def __init__(self, budget_bytes: int) -> None:
        self.budget_bytes = budget_bytes
        self.counts: Counter[str] = Counter()
        self._entries: dict[str, Entry] = {}
        self._kinds: Counter[Kind] = Counter()
        self._index: dict[str, dict[int, dict[int, list[Entry]]]] = {}
        self._blocks: Counter[object] = Counter()
        self._bytes = 0
        self._clock = 0.0

    # -- what is there -----------------------------------------------------------------------------

    def get(self, key: str) -> Entry | None:
        """The entry of that key."""
        return self._entries.get(key)

    def entries(self) -> tuple[Entry, ...]:
        """All entries, oldest first."""
        return tuple(self._entries.values())

    def of_session(self, session: str) -> tuple[Entry, ...]:
        """The entries that a session has made, oldest first."""
        return tuple(e for e in self._entries.values() if e.session == session)

    def find(self, namespace: str, packed: bytes, at_most: int | None = None) -> Entry | None:
        """The deepest entry whose processed ids are the first of `packed` (see `pack_ids`)."""
        return next(self._heading(namespace, packed, at_most), None)

    def path(self, namespace: str, packed: bytes) -> list[Entry]:
        """All entries whose processed ids are the first of `packed`, deepest first."""
        return list(self._heading(namespace, packed, None))

    def has(self, namespace: str, packed: bytes, position: int) -> Entry | None:
        """The entry that stands for exactly the first `position` ids of `packed`."""
        found = self.find(namespace, packed, position)
        return found if found is not None and found.position == position else None

    def footprint(self) -> int:
        """Bytes held: every state, and every block of rows once."""
        return self._bytes

    def report(self) -> dict[str, object]:
        """For /health."""
        return {
            "count": len(self._entries),
            "bytes": self._bytes,
            "budget_bytes": self.budget_bytes,
            "pinned": sum(e.pinned for e in self._entries.values()),
            **{name: self.counts[name] for name in COUNTS},
        }

    def kinds(self) -> dict[str, int]:
        """How many entries there are of each kind."""
        return {kind.value: self._kinds[kind] for kind in Kind}

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
    ) -> Entry | None:
        """Keep a capsule, evicting others for it. None: it does not fit, whatever may go.

        A boundary that is kept already stays as it is, and counts as used.
        """
        key = key_of(namespace, capsule)
        known = self._entries.get(key)
        if known is not None:
            self.use(known)
            return known
        entry = Entry(key, capsule, namespace, session, kind, turn, lineage)
        if _held([*self._staying(), capsule]) > self.budget_bytes:
            entry.machine.fire(CapsuleEvent.DECLINE)
            self.counts["declined"] += 1
            return None
        while self._bytes + self._added_by(capsule) > self.budget_bytes:
            gone = self.evict_lru()
            assert gone is not None, "bytes are counted that nobody holds"
        self._add(entry)
        return entry

    def make_room(self, need_bytes: int, keep: Collection[Entry] = ()) -> bool:
        """Evict until `need_bytes` more fit; whether they do. `keep` stays.

        Where they cannot fit, whatever may go, nothing goes.
        What goes may take rows with it that the newcomer would have shared: weigh it again.
        """
        if _held(self._staying(keep)) + need_bytes > self.budget_bytes:
            self.counts["declined"] += 1
            return False
        while self._bytes + need_bytes > self.budget_bytes:
            gone = self.evict_lru(keep)
            assert gone is not None, "bytes are counted that nobody holds"
        return True

    def shrink(self) -> bool:
        """Let go of half of what is held, because memory is short; whether anything went."""
        aim, before = self._bytes // 2, len(self._entries)
        while self._bytes > aim and self.evict_lru() is not None:
            pass
        return len(self._entries) < before

    def evict_lru(self, keep: Collection[Entry] = ()) -> Entry | None:
        """Let go of the entry that is worth least; None: nothing may go."""
        may_go = [e for e in self._entries.values() if not e.pinned and e not in keep]
        if not may_go:
            return None
        entry = min(may_go, key=lambda e: (not e.first_to_go, self._worth(e)))
        if not entry.first_to_go:
            self._clock = max(self._clock, self._worth(entry))
        self.counts["evicted"] += 1
        self._remove(entry, CapsuleEvent.EVICT)
        return entry

    def drop(self, entry: Entry, *, damaged: bool = False) -> None:
        """Let go of an entry; of a pinned one only if it is damaged."""
        if self._entries.get(entry.key) is entry:
            self.counts["damaged" if damaged else "thinned"] += 1
            self._remove(entry, CapsuleEvent.DAMAGE if damaged else CapsuleEvent.EVICT)

    def use(self, entry: Entry) -> None:
        """The entry was restored, or its boundary was come by again."""
        entry.machine.fire(CapsuleEvent.USE)
        entry.first_to_go = False
        if self._entries.get(entry.key) is entry:
            self._entries[entry.key] = self._entries.pop(entry.key)
            entry.used_at = self._clock

    def pin(self, key: str, capsule: Capsule | None = None, *, budget_bytes: int) -> Refusal | None:
        """Pin the entry of `key`; None: done. All pins together may hold `budget_bytes`.

        `capsule`, if given, must be the entry's own.
        """
        entry = self._entries.get(key)
        if entry is None or capsule not in (None, entry.capsule):
            return Refusal("the state is not held any more")
        pinned = [e.capsule for e in self._entries.values() if e.pinned and e is not entry]
        need = _held([*pinned, entry.capsule])
        if need > budget_bytes:
            return Refusal(
                f"the pinned states would hold {need / 2**20:.1f} MiB, but the limit is "
                f"{budget_bytes / 2**20:.1f} MiB (--capsule-budget-mb); let go of another pin with "
                "flashrt_pin_prefix false, or raise the limit"
            )
        entry.machine.fire(CapsuleEvent.PIN)
        return None

    def unpin(self, key: str) -> None:
        """The entry of `key`, if it is there, may go again."""
        entry = self._entries.get(key)
        if entry is not None:
            entry.machine.fire(CapsuleEvent.UNPIN)

    # -- inside ------------------------------------------------------------------------------------

    def _staying(self, keep: Collection[Entry] = ()) -> list[Capsule]:
        """The capsules that no eviction takes."""
        return [e.capsule for e in self._entries.values() if e.pinned or e in keep]

    def _heading(self, namespace: str, packed: bytes, at_most: int | None) -> Iterator[Entry]:
        """Deepest first. The checksum only says where to look: all ids are compared."""
        by_length = self._index.get(namespace, {})
        most = len(packed) // ID_BYTES if at_most is None else at_most
        crc, start = 0, 0
        candidates: list[Entry] = []
        view = memoryview(packed)
        for length in sorted(by_length):
            if length > most or length * ID_BYTES > len(packed):
                break
            crc = checksum(view[start : length * ID_BYTES], crc)
            start = length * ID_BYTES
            candidates += by_length[length].get(crc, ())
        return (entry for entry in reversed(candidates) if entry.capsule.heads(packed))

    def _add(self, entry: Entry) -> None:
        packed = packed_of(entry.capsule)
        entry.parent = self.find(entry.namespace, packed)
        for child in self._entries.values():
            beyond = child.parent is entry.parent and child.position > entry.position
            if beyond and child.namespace == entry.namespace and child.begins_with(packed):
                child.parent = entry
        self._entries[entry.key] = entry
        self._kinds[entry.kind] += 1
        places = self._index.setdefault(entry.namespace, {}).setdefault(entry.position, {})
        places.setdefault(checksum(packed, 0), []).append(entry)
        self._bytes += self._added_by(entry.capsule)
        self._blocks.update(entry.capsule.rows)
        entry.machine.fire(CapsuleEvent.STORE)
        self.counts["stored"] += 1
        entry.used_at = self._clock

    def _remove(self, entry: Entry, event: CapsuleEvent) -> None:
        entry.machine.fire(event)
        del self._entries[entry.key]
        self._kinds[entry.kind] -= 1
        for child in self._entries.values():
            if child.parent is entry:
                child.parent = entry.parent
        by_length = self._index[entry.namespace]
        places = by_length[entry.position]
        crc = checksum(packed_of(entry.capsule), 0)
        places[crc].remove(entry)
        if not places[crc]:
            del places[crc]
        if not places:
            del by_length[entry.position]
        if not by_length:
            del self._index[entry.namespace]
        self._blocks.subtract(entry.capsule.rows)
        self._bytes -= self._added_by(entry.capsule)
        for block in entry.capsule.rows:
            if not self._blocks[block]:
                del self._blocks[block]

    def _added_by(self, capsule: Capsule) -> int:
        """Bytes that it holds and nobody else does."""
        new = (block.block_bytes for block in capsule.rows if not self._blocks[block])
        return capsule.state_bytes + sum(new)

    def _worth(self, entry: Entry) -> float:
        """Tokens that the entry saves for each MiB that it holds alone, from its last use on."""
        alone = (b.block_bytes for b in entry.capsule.rows if self._blocks[b] == 1)
        mib = (entry.capsule.state_bytes + sum(alone)) / 2**20
        return entry.used_at + entry.cost / max(mib, 1e-9)


COUNTS = ("stored", "evicted", "declined", "thinned", "damaged")


def key_of(namespace: str, capsule: Capsule) -> str:
    """Names a boundary: the namespace and the processed ids."""
    text = namespace.encode(errors="surrogatepass")
    head = b"%d:" % len(text) + text
    return hashlib.blake2b(head + packed_of(capsule), digest_size=16).hexdigest()


def packed_of(capsule: Capsule) -> bytes:
    """The processed ids of a capsule, packed."""
    packed = b"".join(block.packed for block in capsule.rows)
    return packed[: capsule.position * ID_BYTES]


def checksum(data: bytes | memoryview, start: int) -> int:
    """Of ids behind others whose checksum is `start`: it says where to look, not what is equal."""
    return zlib.crc32(data, start)


def _held(capsules: Collection[Capsule] | Iterator[Capsule]) -> int:
    """Bytes of several capsules, shared rows counted once."""
    capsules = list(capsules)
    blocks = {block for capsule in capsules for block in capsule.rows}
    return sum(c.state_bytes for c in capsules) + sum(block.block_bytes for block in blocks)
