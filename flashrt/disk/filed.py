"""What crosses the seam to the disk room: buffers as bytes, and the facts of a filed capsule."""

from collections.abc import Mapping

import attrs

ID_BYTES = 4
"""Of one packed id."""


@attrs.frozen(eq=False)
class HostBuffer:
    """One named buffer as bytes, rows in C order, in this machine's byte order.

    `dtype` is one of `flashrt.disk.tensors.DTYPES`; `data` has exactly the bytes of `shape`, which
    may lie in pieces.
    """

    dtype: str
    shape: tuple[int, ...]
    data: bytes | bytearray | memoryview | tuple[memoryview, ...]

    @property
    def pieces(self) -> tuple[memoryview, ...]:
        """Its bytes, one view behind the other."""
        return self.data if isinstance(self.data, tuple) else (memoryview(self.data),)


Buffers = Mapping[str, HostBuffer]


@attrs.frozen
class FiledRow:
    """A row block in the directory. `name` says what it holds: equal blocks have one name.

    `packed`: the ids of its rows. `size_bytes`: of its file.
    """

    packed: bytes = attrs.field(repr=False)
    name: str
    size_bytes: int


Row = tuple[bytes, Buffers | str]
"""A row block to write: its packed ids, and its buffers, or the name of one that is filed."""

ReadRow = tuple[bytes, Buffers | None]
"""A row block that was read: its packed ids, and its buffers; None where they were not wanted."""


@attrs.frozen
class Filed:
    """All that a store must know of a capsule that lies in the directory.

    `key` names it among those of its identity. `position` ids are processed; `pending` may be one
    more. `lineage`: per span its stop, whether it was decoded, and the ids beyond. `saved_at`:
    seconds since the epoch. `rows` and `state_bytes` are the directory's: what is given to `write`
    there is not looked at.
    """

    key: str
    namespace: str
    session: str
    kind: str
    turn: int
    position: int
    pending: int | None
    lineage: tuple[tuple[int, bool, tuple[int, ...]], ...]
    saved_at: float
    pinned: bool = False
    rows: tuple[FiledRow, ...] = ()
    state_bytes: int = 0

    @property
    def packed(self) -> bytes:
        """The processed ids, `ID_BYTES` each."""
        return b"".join(row.packed for row in self.rows)[: self.position * ID_BYTES]

    @property
    def size_bytes(self) -> int:
        """Of its files, those that it shares included."""
        return self.state_bytes + sum(row.size_bytes for row in self.rows)


@attrs.frozen
class Gone:
    """A file that was let go of, and why. `key`: of which capsule of this identity, if of one."""

    file: str
    why: str
    size_bytes: int
    key: str | None = None


@attrs.frozen
class Written:
    """What writing came to: the capsule as it is filed now, and what went to make room for it."""

    filed: Filed
    gone: tuple[Gone, ...] = ()
