"""The disk as the store sees it: capsules are handed over to be filed, and read when restored."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Protocol

import attrs

from flashrt.disk.filed import Filed
from flashrt.engine.protocol import RawBuffer

RawBuffers = Mapping[str, RawBuffer]


@attrs.frozen(eq=False)
class Parcel:
    """A capsule to be filed. `rows`: packed ids with buffers, or the name of a block that is
    filed already. `size_bytes`: of all buffers in it, which live until it is filed.
    `number`: no other parcel has it; a key may come again."""

    number: int
    filed: Filed
    state: RawBuffers
    rows: Sequence[tuple[bytes, RawBuffers | str]]
    size_bytes: int


@attrs.frozen(eq=False)
class Delivered:
    """What came of the parcel of that number: the names of its row blocks, or why there is no file.

    `gone`: keys of capsules whose files went to make room.
    """

    number: int
    rows: tuple[str, ...] = ()
    fault: str = ""
    gone: tuple[str, ...] = ()


@attrs.frozen(eq=False)
class Unpacked:
    """A capsule that was read, every byte of it verified; None for rows that were known."""

    state: RawBuffers
    rows: tuple[RawBuffers | None, ...]


class Shelf(Protocol):
    """Files by one writer, in the order in which they come. Engine thread only."""

    def takes(self, size_bytes: int, /) -> bool:
        """Whether so much may be handed over now; what is under way is bounded."""
        ...

    def put(self, parcel: Parcel, /) -> None:
        """Have it filed, some time."""
        ...

    def delivered(self) -> Iterator[Delivered]:
        """What was done since the last call."""
        ...

    def wait(self, number: int, /) -> None:
        """For the parcel of that number, a short while."""
        ...

    def read(self, key: str, known: Collection[str], /) -> Unpacked:
        """A capsule. Raises DiskFault."""
        ...

    def delete(self, key: str, /) -> None:
        """Have its file deleted, behind what was handed over before."""
        ...

    @property
    def busy(self) -> bool:
        """Whether anything is under way."""
        ...

    @property
    def budget_bytes(self) -> int | None:
        """What the files may hold; None: no limit."""
        ...

    def manifest_bytes(self, position: int, /) -> int:
        """What a file of so many ids takes beside its buffers."""
        ...

    def report(self) -> Mapping[str, object]:
        """What the directory holds: `count`, `bytes`, `budget_bytes`."""
        ...
