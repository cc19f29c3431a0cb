"""How a capsule comes into being: parts first, each under the digest of its bytes, manifest last.

Until its manifest has its name a capsule is not there; from then on all of it is.
"""

from collections.abc import Callable, Collection, Sequence

import attrs

from flashrt.disk.filed import Buffers, Filed, FiledRow, Gone, Row
from flashrt.disk.folder import Folder
from flashrt.disk.listing import part_fault
from flashrt.disk.manifest import Manifest, encoded
from flashrt.disk.parts import Draft
from flashrt.errors import DiskFault

ATTEMPTS = 3
"""So often parts are written that another server took for orphans meanwhile."""

MakeRoom = Callable[[int, Collection[str]], tuple[Gone, ...]]
"""Let others go until so many bytes fit; these files stay. Raises DiskFault where they cannot."""


@attrs.frozen
class Writing:
    """One capsule that is to be written; `drafts` are the parts whose bytes we have."""

    manifest: Manifest
    data: bytes
    drafts: tuple[Draft, ...]

    @classmethod
    def begun(
        cls, folder: Folder, identity: str, filed: Filed, state: Buffers, rows: Sequence[Row]
    ) -> "Writing":
        """Everything hashed, nothing written. Raises BadBuffers, BadManifest and DiskFault."""
        own, drafts, filed_rows = Draft.of(state), [], []
        for packed, row in rows:
            if isinstance(row, str):
                filed_rows.append(FiledRow(packed, row, _filed_size(folder, row)))
                continue
            draft = Draft.of(row)
            drafts.append(draft)
            filed_rows.append(FiledRow(packed, draft.name, draft.size_bytes))
        whole = attrs.evolve(filed, rows=tuple(filed_rows), state_bytes=own.size_bytes)
        manifest = Manifest(identity, whole, own.name)
        return cls(manifest, encoded(manifest), (own, *drafts))

    def commit(self, folder: Folder, now_s: float, make_room: MakeRoom) -> tuple[Gone, ...]:
        """Write what is not there yet, and name it; what went for it. Raises DiskFault."""
        file, named = self.manifest.file, self.manifest.parts
        gone: tuple[Gone, ...] = ()
        for _ in range(ATTEMPTS):
            missing = {d.name: d for d in self.drafts if _fault(folder, d.name, d.size_bytes)}
            need = sum(draft.size_bytes for draft in missing.values()) + len(self.data)
            gone += make_room(need, {file, *named})
            for draft in missing.values():
                with folder.written(draft.chunks, now_s) as temporary:
                    folder.rename(temporary, draft.name)
            folder.sync()
            with folder.written([self.data], now_s) as temporary, folder.locked():
                # Nobody takes a part for an orphan while we hold the lock.
                faults = [fault for one in named.items() if (fault := _fault(folder, *one))]
                if not faults:
                    folder.rename(temporary, file)
                    folder.sync()
                    return gone
        raise DiskFault(f"{folder.path / file} cannot be written: {faults[0]}")


def _fault(folder: Folder, name: str, size_bytes: int) -> str | None:
    return part_fault(name, size_bytes, folder.entry(name))


def _filed_size(folder: Folder, name: str) -> int:
    found = folder.entry(name)
    if found is None or not found.regular:
        raise DiskFault(f"{folder.path / name} is not there any more")
    return found.size_bytes
