"""Where a state is found: by full token lists, in its namespace, whatever memory it lies in."""

from collections import Counter
from collections.abc import Iterator

from flashrt.engine.protocol import ID_BYTES
from flashrt.policy.entries import Entry, checksum, packed_of
from flashrt.policy.spacing import Kind


class CapsuleIndex:
    """All entries by key and by their ids, oldest use first, and what each begins with."""

    def __init__(self) -> None:
        self.entries: dict[str, Entry] = {}
        self.kinds: Counter[Kind] = Counter()
        self._index: dict[str, dict[int, dict[int, list[Entry]]]] = {}

    def heading(self, namespace: str, packed: bytes, at_most: int | None = None) -> Iterator[Entry]:
        """All entries whose processed ids are the first of `packed`, deepest first.

        The checksum only says where to look: all ids are compared.
        """
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

    def add(self, entry: Entry) -> None:
        """A new entry; what begins with it would be computed again from there."""
        packed = packed_of(entry.capsule)
        entry.parent = next(self.heading(entry.namespace, packed), None)
        for child in self.entries.values():
            beyond = child.parent is entry.parent and child.position > entry.position
            if beyond and child.namespace == entry.namespace and child.begins_with(packed):
                child.parent = entry
        self.entries[entry.key] = entry
        self.kinds[entry.kind] += 1
        places = self._index.setdefault(entry.namespace, {}).setdefault(entry.position, {})
        places.setdefault(checksum(packed, 0), []).append(entry)

    def move_to_end(self, entry: Entry) -> None:
        """It is the newest now."""
        self.entries[entry.key] = self.entries.pop(entry.key)

    def remove(self, entry: Entry) -> None:
        """Nobody finds it any more."""
        del self.entries[entry.key]
        self.kinds[entry.kind] -= 1
        for child in self.entries.values():
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
