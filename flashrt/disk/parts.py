"""One file of buffers. Its name is the digest of its bytes, and both are compared on reading."""

import hashlib
from collections.abc import Callable

import attrs

from flashrt.disk.filed import Buffers
from flashrt.disk.folder import PIECE_BYTES, Chunk, Folder, OpenFile
from flashrt.disk.names import PART_DIGEST_BYTES, part_file, part_name
from flashrt.disk.tensors import LENGTH_BYTES, BadBuffers, Layout, header_length, laid_out, parsed
from flashrt.errors import DiskFault


@attrs.frozen(eq=False)
class Draft:
    """A part that may have to be written."""

    name: str
    size_bytes: int
    chunks: tuple[Chunk, ...]

    @classmethod
    def of(cls, buffers: Buffers) -> "Draft":
        """Raises BadBuffers for what cannot be written."""
        layout = laid_out(buffers)
        views = [piece for name in layout.entries for piece in buffers[name].pieces]
        # A view of nothing cannot be cast, and has nothing to write.
        data: list[Chunk] = [view.cast("B") for view in views if view.nbytes]
        chunks: tuple[Chunk, ...] = (layout.header, *data)
        return cls(part_file(chunks), layout.file_bytes, chunks)


def read(folder: Folder, name: str, size_bytes: int) -> Buffers:
    """The buffers of a part. Raises BadBuffers if it is not what its name says, and DiskFault."""
    with folder.reading(name) as file:
        layout = _layout(file, size_bytes)
        # The file has so many bytes, and its header accounts for each of them.
        try:
            data = memoryview(bytearray(layout.data_bytes))
        except MemoryError as error:
            there = f"{folder.path / name}: there is no memory for its {layout.data_bytes:,} bytes"
            raise DiskFault(there) from error
        _hashed(file, layout, lambda start, stop: data[start:stop])
    return layout.cut(data)


def verify(folder: Folder, name: str, size_bytes: int) -> None:
    """Whether `read` would be served; holds only a piece at a time. Raises as `read`."""
    piece = memoryview(bytearray(PIECE_BYTES))
    with folder.reading(name) as file:
        _hashed(file, _layout(file, size_bytes), lambda start, stop: piece[: stop - start])


def _layout(file: OpenFile, size_bytes: int) -> Layout:
    """What the header says, which is all that lies in front of the data."""
    if file.size_bytes != size_bytes:
        raise BadBuffers(f"it has {file.size_bytes:,} bytes, not {size_bytes:,}")
    start = _next(file, min(LENGTH_BYTES, size_bytes))
    layout = parsed(start + _next(file, header_length(start, size_bytes)))
    if layout.file_bytes != size_bytes:
        raise BadBuffers(f"its header tells of {layout.file_bytes:,} bytes, not {size_bytes:,}")
    return layout


def _next(file: OpenFile, count: int) -> bytes:
    data = bytearray(count)
    file.into(memoryview(data))
    return bytes(data)


def _hashed(file: OpenFile, layout: Layout, place: Callable[[int, int], memoryview]) -> None:
    """Read the data to where `place` says, piece by piece, and hold the digest against the name."""
    digest = hashlib.blake2b(layout.header, digest_size=PART_DIGEST_BYTES)
    for start in range(0, layout.data_bytes, PIECE_BYTES):
        view = place(start, min(start + PIECE_BYTES, layout.data_bytes))
        file.into(view)
        digest.update(view)
    if part_name(digest.hexdigest()) != file.name:
        raise BadBuffers("it does not have its checksum")
