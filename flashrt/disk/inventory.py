"""What `flashrt capsules` tells: the capsules, whether they are whole, and all else there."""

from collections.abc import Iterator, Mapping, Sequence

import attrs

from flashrt.disk.filed import Gone
from flashrt.disk.folder import Found
from flashrt.disk.listing import Item, Listing

IDENTITY_LETTERS = 12
UNITS = (("d", 86400.0), ("h", 3600.0), ("min", 60.0), ("s", 1.0))


@attrs.frozen
class Row:
    """One capsule. `bytes`: of its files, those that it shares included. `fault`: why not whole."""

    key: str
    tokens: int
    bytes: int
    age_s: float
    identity: str
    file: str
    fault: str | None

    @property
    def cells(self) -> tuple[str, ...]:
        """As it stands in the table."""
        return (
            printable(self.key) or self.file,
            f"{self.tokens:,}",
            mib(self.bytes),
            age(self.age_s),
            printable(self.identity[:IDENTITY_LETTERS]),
            "whole" if self.fault is None else printable(self.fault),
        )


@attrs.frozen
class Inventory:
    """A directory as it is. `bytes`: of all that is ours, what capsules share counted once."""

    directory: str
    capsules: tuple[Row, ...]
    bytes: int
    orphans: tuple[str, ...]
    temporaries: tuple[str, ...]
    notes: tuple[str, ...]
    damaged_notes: tuple[str, ...]
    foreign: tuple[str, ...]

    @classmethod
    def taken(
        cls, directory: str, listing: Listing, damaged: Mapping[str, str], now_s: float
    ) -> "Inventory":
        """`damaged`: parts and notes that are not what their names say, and why."""
        items = (*listing.whole(), *listing.torn())
        referred = listing.references()
        return cls(
            directory=directory,
            capsules=tuple(_row(item, damaged, now_s) for item in items),
            bytes=listing.size_bytes,
            orphans=tuple(sorted(name for name in listing.parts if name not in referred)),
            temporaries=_names(listing.temporaries),
            notes=_names(listing.notes),
            damaged_notes=_names([found for found in listing.notes if found.name in damaged]),
            foreign=_names(listing.foreign),
        )

    @property
    def is_sound(self) -> bool:
        """Whether every capsule is whole, and every note."""
        return not self.damaged_notes and all(row.fault is None for row in self.capsules)

    def lines(self) -> Iterator[str]:
        """For a person."""
        head = ("capsule", "tokens", "MiB", "unused for", "identity", "state")
        if self.capsules:
            yield from _table([head, *(row.cells for row in self.capsules)])
        whole = sum(row.fault is None for row in self.capsules)
        yield (
            f"{whole} whole, {len(self.capsules) - whole} not; {mib(self.bytes)} MiB in all; "
            f"{len(self.orphans)} orphaned parts, {len(self.temporaries)} temporaries, "
            f"{len(self.notes)} notes ({len(self.damaged_notes)} damaged), "
            f"{len(self.foreign)} foreign files"
        )


def gone_lines(gone: Sequence[Gone]) -> Iterator[str]:
    """What a prune came to, for a person."""
    for one in gone:
        yield f"{printable(one.file)}: {printable(one.why)}"
    yield f"{len(gone)} files went, {mib(sum(one.size_bytes for one in gone))} MiB"


def printable(text: str) -> str:
    """A name may be no text at all, and may hold orders for the terminal."""
    letters = text.encode(errors="surrogateescape").decode(errors="backslashreplace")
    return "".join(one if one.isprintable() else repr(one)[1:-1] for one in letters)


def mib(size_bytes: int) -> str:
    """Bytes in MiB."""
    return f"{size_bytes / 2**20:,.1f}"


def age(seconds: float) -> str:
    """In the largest unit of which there is one."""
    unit, length = next((u for u in UNITS if seconds >= u[1]), UNITS[-1])
    return f"{seconds / length:.0f} {unit}"


def _row(item: Item, damaged: Mapping[str, str], now_s: float) -> Row:
    fault = next((f"{name} is {damaged[name]}" for name in item.parts if name in damaged), None)
    return Row(
        key=item.key,
        tokens=item.position,
        bytes=item.found.size_bytes + sum(item.parts.values()),
        age_s=round(max(0.0, now_s - item.found.used_ns / 1e9), 1),
        identity=item.identity,
        file=item.found.name,
        fault=item.fault or fault,
    )


def _names(entries: Sequence[Found]) -> tuple[str, ...]:
    return tuple(sorted(printable(found.name) for found in entries))


def _table(rows: Sequence[tuple[str, ...]]) -> Iterator[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = [
            cell.rjust(width) if 0 < place < 4 else cell.ljust(width)
            for place, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        yield "  ".join(cells).rstrip()
