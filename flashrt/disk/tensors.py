"""Named buffers as one safetensors file, in one form only.

A header is read strictly: it must be, byte for byte, what would be written for the names, dtypes
and shapes that it tells. So offsets that overlap or leave gaps, names that come twice, sizes that
do not fit their dtype and numbers that are huge or negative all end as one refusal, before anything
is allocated.
"""

import math
from collections.abc import Mapping
from typing import Annotated

import attrs
import msgspec

from flashrt.disk.filed import Buffers, HostBuffer

LENGTH_BYTES = 8
"""A file begins with the length of its header, little-endian."""

HEADER_BYTES_MAX = 1 << 20
"""Some ten thousand buffers; a capsule has a dozen."""

ALIGNMENT_BYTES = 64
"""Data begins at a multiple of this; wider items first, so every buffer is aligned to its items."""

DTYPES: Mapping[str, tuple[str, int]] = {
    "bool": ("BOOL", 1),
    "uint8": ("U8", 1),
    "int8": ("I8", 1),
    "float8_e4m3fn": ("F8_E4M3", 1),
    "float8_e5m2": ("F8_E5M2", 1),
    "int16": ("I16", 2),
    "uint16": ("U16", 2),
    "float16": ("F16", 2),
    "bfloat16": ("BF16", 2),
    "int32": ("I32", 4),
    "uint32": ("U32", 4),
    "float32": ("F32", 4),
    "int64": ("I64", 8),
    "uint64": ("U64", 8),
    "float64": ("F64", 8),
}
"""Our names, as torch and numpy write them: the name in the file, and the bytes of an item."""

OURS = {stored: ours for ours, (stored, _) in DTYPES.items()}

Size = Annotated[int, msgspec.Meta(ge=0, le=1 << 48)]
Shape = Annotated[tuple[Size, ...], msgspec.Meta(max_length=8)]


class Entry(msgspec.Struct, forbid_unknown_fields=True):
    """One buffer in a header."""

    dtype: str
    shape: Shape
    data_offsets: tuple[Size, Size]


HEADER = msgspec.json.Decoder(dict[str, Entry])


class BadBuffers(ValueError):
    """Buffers that cannot be written, or a header that is not as it would be written."""


@attrs.frozen
class Layout:
    """Where which buffer lies: `entries` by name, offsets from the end of `header`."""

    header: bytes
    entries: Mapping[str, Entry]
    data_bytes: int

    @property
    def file_bytes(self) -> int:
        """Of the whole file."""
        return len(self.header) + self.data_bytes

    def cut(self, data: memoryview) -> Buffers:
        """The buffers of a file's data, as views of it. `data` has `data_bytes`."""
        return {
            name: HostBuffer(OURS[entry.dtype], entry.shape, data[slice(*entry.data_offsets)])
            for name, entry in self.entries.items()
        }


def laid_out(buffers: Buffers) -> Layout:
    """How buffers are written. Raises BadBuffers for a dtype or a size that does not fit."""
    for name, buffer in buffers.items():
        if buffer.dtype not in DTYPES:
            raise BadBuffers(f"buffer {name!r} is of dtype {buffer.dtype!r}")
        need = _size(buffer.dtype, buffer.shape)
        have = sum(piece.nbytes for piece in buffer.pieces)
        if need != have:
            raise BadBuffers(
                f"buffer {name!r} of {buffer.dtype} {list(buffer.shape)} has {have:,} bytes, "
                f"not {need:,}"
            )
    return _layout({name: (buffer.dtype, buffer.shape) for name, buffer in buffers.items()})


def header_length(start: bytes, file_bytes: int) -> int:
    """The length of the header of a file that begins so. Raises BadBuffers if it cannot be."""
    length = int.from_bytes(start, "little")
    most = min(HEADER_BYTES_MAX, file_bytes - LENGTH_BYTES)
    if len(start) < LENGTH_BYTES or not 0 < length <= most:
        raise BadBuffers(f"its header says that it has {length:,} bytes, of at most {most:,}")
    return length


def parsed(header: bytes) -> Layout:
    """The layout that a header (with its length in front) tells. Raises BadBuffers."""
    try:
        entries = HEADER.decode(header[LENGTH_BYTES:])
        layout = _layout({name: (OURS[e.dtype], e.shape) for name, e in entries.items()})
    except (msgspec.MsgspecError, UnicodeError, KeyError, RecursionError) as error:
        raise BadBuffers(f"its header is broken: {error}") from error
    if layout.header != header:
        raise BadBuffers("its header is not as it was written")
    return layout


def _layout(shapes: Mapping[str, tuple[str, tuple[int, ...]]]) -> Layout:
    entries: dict[str, Entry] = {}
    offset = 0
    for name, (dtype, shape) in sorted(shapes.items(), key=_widest_first):
        end = offset + _size(dtype, shape)
        entries[name] = Entry(DTYPES[dtype][0], tuple(shape), (offset, end))
        offset = end
    text = msgspec.json.encode(entries)
    text += b" " * (-(LENGTH_BYTES + len(text)) % ALIGNMENT_BYTES)
    if len(text) > HEADER_BYTES_MAX:
        raise BadBuffers(f"a header of {len(text):,} bytes; at most {HEADER_BYTES_MAX:,}")
    return Layout(len(text).to_bytes(LENGTH_BYTES, "little") + text, entries, offset)


def _widest_first(item: tuple[str, tuple[str, tuple[int, ...]]]) -> tuple[int, str]:
    name, (dtype, _) = item
    return -DTYPES[dtype][1], name


def _size(dtype: str, shape: tuple[int, ...]) -> int:
    return math.prod(shape) * DTYPES[dtype][1]
