"""Write-behind: capsules become files beside the engine's work, and are known again after a start.

What is handed over is bytes in host memory that nobody changes any more. Of a capsule in a GPU's
memory a copy is made for that, one capsule at a time. A file that cannot be written costs nothing
but that the capsule does not outlive this process, or its place in memory (G8).
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

import attrs

from flashrt.disk.filed import Filed
from flashrt.engine.protocol import Capsule, Carrier, HostCopy, RowBlock
from flashrt.fsm.capsule import CapsuleEvent
from flashrt.policy.entries import Entry, FileState
from flashrt.policy.lineage import Span
from flashrt.policy.shelf import Delivered, Parcel, RawBuffers, Shelf
from flashrt.policy.spacing import Kind
from flashrt.policy.tiers import Part, Tier, Tiers

LATER_RANKS = {Kind.SYSTEM: 1, Kind.COMMITTED: 2}
"""Behind the newest end of each conversation: openings, older ends, and then other boundaries."""

FILED = (FileState.BEGUN, FileState.WHOLE)


@attrs.frozen(eq=False)
class Staged:
    """A capsule whose bytes are being brought together: the copies of parts that lie elsewhere."""

    entry: Entry
    copies: Mapping[Part, HostCopy]


class Filer:
    """Hands capsules to the shelf, and knows which have files. Engine thread only.

    `whole` counts the entries that have one.
    """

    def __init__(self, shelf: Shelf, carrier: Carrier, tiers: Tiers) -> None:
        self.shelf = shelf
        self.counts: Counter[str] = Counter()
        self.whole = 0
        self._carrier = carrier
        self._tiers = tiers
        self._staged: Staged | None = None
        self._handed: dict[int, Entry] = {}
        self._number = 0
        self._lost: list[Entry] = []

    @property
    def busy(self) -> bool:
        """Whether a file is on its way."""
        return self._staged is not None or self.shelf.busy

    def advance(self, entries: Iterable[Entry]) -> bool:
        """Hand over what is ready, and begin with the next one; whether anything is left to do."""
        if self._staged is not None and not self._hand_over(self._staged):
            return True
        entries = list(entries)
        if all(e.file is not FileState.NONE for e in entries):
            return False
        worth = self._worth_it(entries)
        for entry in worth:
            if entry.file is not FileState.NONE or entry.tier is Tier.DISK:
                continue
            if not self.shelf.takes(self._size(entry)):
                return True
            self._make_place(entry, worth, entries)
            if not self._stage(entry):
                return True
        return False

    def collect(self, entries: Mapping[str, Entry]) -> Iterator[Entry]:
        """Note what the shelf has done; gives the entries whose files have gone for others."""
        for parcel in self.shelf.delivered():
            entry = self._handed.pop(parcel.number)
            if entry.file is FileState.BEGUN:
                self._delivered(entry, parcel)
            for key in parcel.gone:
                lost = entries.get(key)
                if lost is not None and lost.file is FileState.WHOLE:
                    self._lose(lost, entries.values())
                    yield lost
        lost_here, self._lost = self._lost, []
        yield from lost_here

    def wait(self, entry: Entry) -> None:
        """A short while, for a file that is on its way."""
        for number, handed in self._handed.items():
            if handed is entry:
                self.shelf.wait(number)

    def forget(self, entry: Entry, entries: Iterable[Entry]) -> None:
        """The entry is let go of, and so is its file."""
        if self._staged is not None and self._staged.entry is entry:
            self._staged = None
        elif entry.file in FILED:
            self.shelf.delete(entry.key)
        self._unname(entry, entries)
        self.whole -= entry.file is FileState.WHOLE
        entry.file = FileState.GIVEN_UP

    # -- inside ------------------------------------------------------------------------------------

    def _worth_it(self, entries: Iterable[Entry]) -> list[Entry]:
        """What the directory has room for together, the most wanted first: another file would only
        take the place of one of these."""
        budget = self.shelf.budget_bytes
        worth: list[Entry] = []
        seen: set[Part] = set()
        size = 0
        for entry in ranked(entries):
            size += self._files_bytes(entry, seen)
            if budget is not None and size > budget:
                break
            worth.append(entry)
        return worth

    def _make_place(self, entry: Entry, worth: Iterable[Entry], entries: Iterable[Entry]) -> None:
        """Delete files that are worth less, least used first, until the entry's has room."""
        budget, entries, wanted = self.shelf.budget_bytes, list(entries), set(worth)
        if budget is None:
            return
        spare = [e for e in entries if e.file is FileState.WHOLE and e not in wanted]
        for victim in reversed(ranked(spare)):
            seen: set[Part] = set()
            filed = [e for e in entries if e.file in FILED]
            if sum(self._files_bytes(e, seen) for e in (*filed, entry)) <= budget:
                return
            self.shelf.delete(victim.key)
            self._lose(victim, entries)
            self._lost.append(victim)

    def _lose(self, entry: Entry, entries: Iterable[Entry]) -> None:
        """It has no file any more."""
        self.counts["unfiled"] += 1
        self._unname(entry, entries)
        self.whole -= 1
        entry.file = FileState.GIVEN_UP

    def _files_bytes(self, entry: Entry, seen: set[Part]) -> int:
        """Of its files, without the parts in `seen`, which gets its parts."""
        new = [part for part in self._tiers.parts(entry) if part not in seen]
        seen.update(new)
        return sum(p.size_bytes for p in new) + self.shelf.manifest_bytes(entry.position)

    def _size(self, entry: Entry) -> int:
        parts = self._tiers.parts(entry)
        return sum(part.size_bytes for part in parts if part.file is None)

    def _stage(self, entry: Entry) -> bool:
        """Bring its bytes together; whether they are handed over already."""
        apart = [
            part
            for part in self._tiers.parts(entry)
            if part.file is None and part.lies is Tier.DEVICE
        ]
        try:
            copies = {part: self._carrier.for_file(part.owner.buffers) for part in apart}
        except Exception:
            self._fail(entry)
            return True
        entry.file = FileState.BEGUN
        self._staged = Staged(entry, copies)
        return self._hand_over(self._staged)

    def _hand_over(self, staged: Staged) -> bool:
        """Whether all copies are whole, and the entry is the shelf's now."""
        entry = staged.entry
        if not all(copy.done for copy in staged.copies.values()):
            return False
        self._staged = None
        try:
            state = self._raw(staged, self._part(entry))
            blocks = zip(entry.capsule.rows, self._tiers.rows(entry), strict=True)
            rows = [(block.packed, part.file or self._raw(staged, part)) for block, part in blocks]
        except Exception:
            self._fail(entry)
            return True
        self._number += 1
        self._handed[self._number] = entry
        self.shelf.put(Parcel(self._number, facts(entry), state, rows, self._size(entry)))
        return True

    def _part(self, entry: Entry) -> Part:
        return self._tiers.parts(entry)[0]

    def _raw(self, staged: Staged, part: Part) -> RawBuffers:
        copy = staged.copies.get(part)
        buffers = part.owner.buffers if copy is None else copy.wait()
        return self._carrier.to_bytes(buffers)

    def _fail(self, entry: Entry) -> None:
        self.counts["file_faults"] += 1
        entry.file = FileState.GIVEN_UP

    def _delivered(self, entry: Entry, parcel: Delivered) -> None:
        if parcel.fault:
            self._fail(entry)
            for part in self._tiers.rows(entry):
                # A name may be what was wrong: others are told all bytes again.
                part.file = None if part.lies is not Tier.DISK else part.file
            return
        self.counts["filed"] += 1
        self.whole += 1
        entry.file = FileState.WHOLE
        for part, name in zip(self._tiers.rows(entry), parcel.rows, strict=True):
            part.file = name

    def _unname(self, entry: Entry, entries: Iterable[Entry]) -> None:
        """The directory keeps those of its row blocks that other files refer to, and no others."""
        filed = [e for e in entries if e is not entry and e.file in FILED]
        kept = {part for e in filed for part in self._tiers.parts(e)}
        for part in self._tiers.rows(entry):
            if part not in kept:
                part.file = None


def ranked(entries: Iterable[Entry]) -> list[Entry]:
    """What a start would miss most comes first; of equals, what was used last."""
    ranks: dict[Entry, int] = {}
    ended: set[str] = set()
    for entry in reversed(list(entries)):
        ranks[entry] = LATER_RANKS.get(entry.kind, 3)
        if entry.kind is Kind.COMMITTED and entry.session not in ended:
            ended.add(entry.session)
            ranks[entry] = 0
    return sorted(ranks, key=ranks.__getitem__)


def facts(entry: Entry) -> Filed:
    """What its file says of a capsule."""
    return Filed(
        key=entry.key,
        namespace=entry.namespace,
        session=entry.session,
        kind=entry.kind.value,
        turn=entry.turn,
        position=entry.position,
        pending=entry.capsule.pending,
        lineage=tuple((span.stop, span.decoded, span.beyond) for span in entry.lineage),
        saved_at=0.0,
        pinned=entry.pinned,
    )


def entry_of(filed: Filed, identity: str, blocks: dict[str, RowBlock]) -> Entry:
    """A capsule that lies in files only; `blocks` by name, those of other files among them.

    Sizes are those of the files until it is read.
    """
    rows, start = [], 0
    for row in filed.rows:
        block = blocks.get(row.name)
        if block is None or (block.start, block.packed) != (start, row.packed):
            block = RowBlock(start, row.packed, {}, row.size_bytes)
            blocks[row.name] = block
        rows.append(block)
        start = block.stop
    capsule = Capsule(filed.position, filed.pending, identity, {}, filed.state_bytes, tuple(rows))
    lineage = tuple(Span(stop, decoded, beyond) for stop, decoded, beyond in filed.lineage)
    entry = Entry(
        filed.key,
        capsule,
        filed.namespace,
        filed.session,
        Kind(filed.kind),
        filed.turn,
        lineage,
        file=FileState.WHOLE,
    )
    entry.machine.fire(CapsuleEvent.FIND)
    return entry
