"""What lies in a capsule directory, by names, sizes and manifests; parts are not read."""

import threading
from collections import Counter
from collections.abc import Iterator, Mapping

import attrs

from flashrt.disk.folder import Folder, Found
from flashrt.disk.manifest import MANIFEST_BYTES_MAX, BadManifest, Manifest, decoded
from flashrt.disk.names import STRANGERS, Role, role
from flashrt.disk.notes import HEAD_BYTES, NOTE_BYTES_MAX, BadNote, unframed
from flashrt.errors import DiskFault


@attrs.frozen
class Item:
    """A manifest as listed. `fault`: why it cannot be used.

    `is_unread`: nobody knows what it says, since the system did not let us read it just now.
    """

    found: Found
    identity: str = ""
    key: str = ""
    position: int = 0
    parts: Mapping[str, int] = attrs.field(factory=dict)
    fault: str | None = None
    is_unread: bool = False


@attrs.frozen
class Listing:
    """Everything in the directory, by its role."""

    items: tuple[Item, ...]
    parts: Mapping[str, Found]
    notes: tuple[Found, ...]
    temporaries: tuple[Found, ...]
    foreign: tuple[Found, ...]

    def whole(self) -> Iterator[Item]:
        """The capsules, last used first."""
        sound = [item for item in self.items if item.fault is None]
        return iter(sorted(sound, key=lambda item: (-item.found.used_ns, item.found.name)))

    def torn(self) -> Iterator[Item]:
        """The manifests that cannot be used."""
        return (item for item in self.items if item.fault is not None)

    def references(self) -> Counter[str]:
        """How many capsules refer to each part."""
        return Counter(name for item in self.whole() for name in item.parts)

    @property
    def size_bytes(self) -> int:
        """All that is ours, temporaries too."""
        items = (item.found for item in self.items)
        ours = (*items, *self.parts.values(), *self.notes, *self.temporaries)
        return sum(found.size_bytes for found in ours if found.regular)


class Listings:
    """Looks at a directory again and again; a manifest that stayed as it was is not read anew."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: dict[str, Item] = {}

    def look(self, folder: Folder) -> Listing:
        """As it is now. Raises DiskFault."""
        by_role: dict[Role, list[Found]] = {what: [] for what in Role}
        for found in folder.entries():
            by_role[role(found.name)].append(found)
        parts = {found.name: found for found in by_role[Role.PART]}
        with self._lock:
            items = [
                item
                for found in by_role[Role.MANIFEST]
                if (item := _again(folder, found, self._known.get(found.name))) is not None
            ]
            self._known = {item.found.name: item for item in items if not item.is_unread}
        return Listing(
            items=tuple(_with_parts(item, parts) for item in items),
            parts=parts,
            notes=tuple(by_role[Role.NOTE]),
            temporaries=tuple(by_role[Role.TEMPORARY]),
            foreign=tuple(f for f in by_role[Role.FOREIGN] if f.name not in STRANGERS),
        )


def read_manifest(folder: Folder, name: str) -> Manifest:
    """A sound manifest that has its own name. Raises DiskFault."""
    try:
        return _manifest(folder, name)
    except BadManifest as bad:
        raise DiskFault(f"{folder.path / name} {bad}") from bad


def read_note(folder: Folder, name: str) -> bytes:
    """The bytes of a sound note. Raises DiskFault."""
    try:
        return unframed(name, folder.content(name, HEAD_BYTES + NOTE_BYTES_MAX))
    except BadNote as bad:
        raise DiskFault(f"{folder.path / name} {bad}") from bad


def part_fault(name: str, size_bytes: int, found: Found | None) -> str | None:
    """What is wrong with a part by its looks."""
    if found is None:
        return f"{name} is missing"
    if not found.regular:
        return f"{name} is no regular file"
    if found.size_bytes != size_bytes:
        return f"{name} has {found.size_bytes:,} bytes, not {size_bytes:,}"
    return None


def _again(folder: Folder, found: Found, known: Item | None) -> Item | None:
    """None: it has gone meanwhile."""
    if known is not None and known.found == found:
        return known
    if not found.regular:
        return Item(found, fault=f"{folder.path / found.name} is no regular file")
    try:
        manifest = _manifest(folder, found.name)
    except BadManifest as bad:
        return Item(found, fault=f"{folder.path / found.name} {bad}")
    except DiskFault as fault:
        gone = folder.entry(found.name) is None
        return None if gone else Item(found, fault=str(fault), is_unread=True)
    filed = manifest.filed
    return Item(found, manifest.identity, filed.key, filed.position, manifest.parts)


def _manifest(folder: Folder, name: str) -> Manifest:
    """Raises BadManifest for what it says, and DiskFault where it cannot be read."""
    manifest = decoded(folder.content(name, MANIFEST_BYTES_MAX))
    if manifest.file != name:
        raise BadManifest("has another capsule's name")
    return manifest


def _with_parts(item: Item, parts: Mapping[str, Found]) -> Item:
    faults = (part_fault(name, size, parts.get(name)) for name, size in item.parts.items())
    fault = next((fault for fault in faults if fault is not None), None)
    return attrs.evolve(item, fault=f"{item.found.name}: {fault}") if fault else item
