"""A directory of capsules: what is in it is whole, and what is read from it was verified."""

import logging
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from flashrt.disk import parts
from flashrt.disk.filed import Buffers, Filed, Gone, ReadRow, Row, Written
from flashrt.disk.folder import Folder, Found
from flashrt.disk.listing import Item, Listing, Listings, read_manifest, read_note
from flashrt.disk.manifest import BadManifest
from flashrt.disk.names import manifest_file, note_file
from flashrt.disk.notes import NAME, BadNote, framed
from flashrt.disk.opening import prepare
from flashrt.disk.pruning import Pruning
from flashrt.disk.tensors import BadBuffers
from flashrt.disk.writing import Writing
from flashrt.errors import DiskFault

log = logging.getLogger("flashrt")

Read = tuple[Filed, Buffers, tuple[ReadRow, ...]]
Gones = tuple[Gone, ...]


class CapsuleDirectory:
    """Capsules of one identity in a directory that other servers may share.

    Any thread may call it, several at once. Every call but the constructor raises DiskFault.
    """

    def __init__(
        self,
        path: Path,
        identity: str,
        budget_bytes: int | None,
        *,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """Makes the directory, 0700. Raises CannotServe if it cannot be used.

        `budget_bytes` bounds all that lies there, whoever wrote it; None: nothing does.
        """
        self.path, self.identity, self.budget_bytes = path.absolute(), identity, budget_bytes
        self.counts: Counter[str] = Counter()
        self._clock = clock
        self._listings = Listings()
        self._seen = (0, 0)
        prepare(self.path)

    # -- capsules ----------------------------------------------------------------------------------

    def write(self, filed: Filed, state: Buffers, rows: Sequence[Row]) -> Written:
        """Keep a capsule: whole, or not at all. Row blocks that lie there already are shared.

        Of a row block that is filed its name is enough: see `Written.filed.rows`.
        What is used least goes to make room for it; a capsule of the same key is replaced.
        """
        try:
            with self._counted("write_faults"), Folder.opened(self.path) as folder:
                writing = Writing.begun(folder, self.identity, filed, state, rows)
                room = partial(self._make_room, folder)
                gone = writing.commit(folder, self._clock(), room)
                # Another server may have written as well.
                gone += room(0, {writing.manifest.file})
        except (BadBuffers, BadManifest) as bad:
            self.counts["write_faults"] += 1
            raise DiskFault(f"capsule {filed.key} cannot be written: {bad}") from bad
        self.counts["written"] += 1
        return Written(writing.manifest.filed, gone)

    def read(self, key: str, known: Collection[str] = ()) -> Read:
        """A capsule, all of it verified; row blocks whose names are `known` are left out (None).

        It counts as used now. A damaged part is let go of, so that it may be written anew.
        """
        file = manifest_file(self.identity, key)
        with self._counted("read_faults"), Folder.opened(self.path) as folder:
            manifest = read_manifest(folder, file)
            filed = manifest.filed
            if self.budget_bytes is not None and filed.size_bytes > self.budget_bytes:
                raise DiskFault(f"{folder.path / file} tells of {filed.size_bytes:,} bytes")
            state = self._part(folder, manifest.state, filed.state_bytes)
            rows = tuple(
                (row.packed, None)
                if row.name in known
                else (row.packed, self._part(folder, row.name, row.size_bytes))
                for row in filed.rows
            )
            folder.touch(file, self._clock())
        self.counts["read"] += 1
        return filed, state, rows

    def filed(self) -> Iterator[Filed]:
        """The whole capsules of this identity, last used first. What is not whole is reported.

        Whole: the manifest is sound and all parts are there in their sizes; `read` verifies them.
        """
        filed: list[Filed] = []
        with Folder.opened(self.path) as folder:
            listing = self._look(folder)
            self._report_others(listing)
            for item in listing.whole():
                if item.identity == self.identity:
                    try:
                        filed.append(read_manifest(folder, item.found.name).filed)
                    except DiskFault as fault:  # it has gone since, or was replaced
                        log.info("not used: %s", fault)
        return iter(filed)

    def delete(self, key: str) -> tuple[Gone, ...]:
        """Let go of a capsule and of what it alone refers to; nothing if it is not there.

        Where another server is at work, the parts are left for the next `prune` of anybody.
        """
        file = manifest_file(self.identity, key)
        with Folder.opened(self.path) as folder:
            listing = self._look(folder)
            item = next((item for item in listing.items if item.found.name == file), None)
            if item is None or not folder.remove(file):
                return ()
            gone = [Gone(file, "deleted", item.found.size_bytes, key)]
            try:
                with folder.locked(wait_s=0.0):
                    gone += self._orphaned_by(folder, item)
            except DiskFault as fault:
                log.info("left for later: %s", fault)
        return tuple(gone)

    def prune(self) -> tuple[Gone, ...]:
        """Let go of torn capsules, orphaned parts, old temporaries, and what passes the budget."""
        with Folder.opened(self.path) as folder:
            return self._make_room(folder, 0, ())

    # -- notes -------------------------------------------------------------------------------------

    def write_note(self, name: str, data: bytes) -> None:
        """Keep bytes under a name of this identity, in the place of what was there."""
        file = self._note_file(name)
        try:
            content = framed(file, data)
        except BadNote as bad:
            raise DiskFault(f"note {name} {bad}") from bad
        with self._counted("write_faults"), Folder.opened(self.path) as folder:
            self._make_room(folder, len(content), {file})
            with folder.written([content], self._clock()) as temporary:
                folder.rename(temporary, file)
            folder.sync()

    def read_note(self, name: str) -> bytes | None:
        """The bytes of that name, verified; None: there are none."""
        file = self._note_file(name)
        with self._counted("read_faults"), Folder.opened(self.path) as folder:
            return None if folder.entry(file) is None else read_note(folder, file)

    # -- for /health -------------------------------------------------------------------------------

    def report(self) -> dict[str, object]:
        """As it was at the last look, without one: capsules, bytes, budget, and what went wrong."""
        count, size = self._seen
        budget = {"budget_bytes": self.budget_bytes}
        return {"count": count, "bytes": size, **budget, **{n: self.counts[n] for n in COUNTS}}

    # -- inside ------------------------------------------------------------------------------------

    @contextmanager
    def _counted(self, name: str) -> Iterator[None]:
        try:
            yield
        except DiskFault:
            self.counts[name] += 1
            raise

    def _note_file(self, name: str) -> str:
        if not NAME.fullmatch(name):
            raise DiskFault(f"{name[:50]!r} is no name of a note ({NAME.pattern})")
        return note_file(self.identity, name)

    def _look(self, folder: Folder) -> Listing:
        listing = self._listings.look(folder)
        self._seen = (sum(1 for _ in listing.whole()), listing.size_bytes)
        return listing

    def _report_others(self, listing: Listing) -> None:
        """What is not used, and why."""
        others = [item for item in listing.whole() if item.identity != self.identity]
        self.counts["other_identity"] = len(others)
        self.counts["torn"], self.counts["foreign"] = 0, len(listing.foreign)
        for item in listing.torn():
            self.counts["torn"] += 1
            log.warning("not used: %s", item.fault)
        for found in listing.foreign:
            log.warning("not ours, left alone: %s", self.path / found.name)

    def _part(self, folder: Folder, name: str, size_bytes: int) -> Buffers:
        found = folder.entry(name)
        try:
            return parts.read(folder, name, size_bytes)
        except BadBuffers as bad:
            if found is not None:
                self._discard(folder, found)
            raise DiskFault(f"{folder.path / name} is damaged: {bad}") from bad

    def _discard(self, folder: Folder, damaged: Found) -> None:
        """Whoever writes the same bytes again would believe that they are there."""
        self.counts["damaged"] += 1
        try:
            with folder.locked(wait_s=0.5):
                found = folder.entry(damaged.name)
                if found is not None and found.inode == damaged.inode:
                    folder.remove(damaged.name)
        except DiskFault as fault:
            log.info("a damaged part stays: %s", fault)

    def _make_room(self, folder: Folder, need_bytes: int, keep: Collection[str]) -> Gones:
        """Prune until `need_bytes` fit. Raises DiskFault where they cannot: then only what is of no
        use to anybody goes."""
        budget = self.budget_bytes
        with folder.locked():
            pruning = Pruning(
                self._look(folder), self._clock(), folder.is_abandoned, self.identity, keep
            )
            pruning.useless()
            useless = len(pruning.gone)
            fits = budget is None or pruning.down_to(budget - need_bytes)
            gone = pruning.gone if fits or not need_bytes else pruning.gone[:useless]
            for one in gone:
                folder.remove(one.file)
            self._look(folder)
        if not fits and need_bytes:
            raise DiskFault(
                f"{self.path} has no room for {need_bytes:,} bytes more within its budget of "
                f"{budget:,} (--disk-capsule-budget-mb)"
            )
        return tuple(gone)

    def _orphaned_by(self, folder: Folder, item: Item) -> list[Gone]:
        """Let go of the parts that only a deleted capsule referred to."""
        listing = self._look(folder)
        if any(other.is_unread for other in listing.items):
            return []
        references = listing.references()
        mine = [listing.parts[name] for name in item.parts if name in listing.parts]
        gone = [
            Gone(found.name, "no capsule refers to it any more", found.size_bytes)
            for found in mine
            if not references[found.name]
        ]
        for one in gone:
            folder.remove(one.file)
        return gone


COUNTS = (
    *("written", "read", "write_faults", "read_faults"),
    *("damaged", "torn", "foreign", "other_identity"),
)
