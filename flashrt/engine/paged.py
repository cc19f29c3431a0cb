"""Buffers in host memory that may lie in pieces, and how they come from and to a device.

Every transfer is a plain copy of bytes that follow each other on both sides: no kernel, no memory
in between, and from and to pinned memory nobody waits for it.
"""

import itertools
import math
from bisect import bisect
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType

import attrs
import numpy as np
import torch
from torch import Tensor

from flashrt.engine.arena import Extent


@attrs.frozen(eq=False)
class Paged:
    """A tensor's bytes in C order, in pieces one behind the other."""

    dtype: torch.dtype
    shape: tuple[int, ...]
    pieces: tuple[np.ndarray, ...]
    """Each a part of an extent, which it keeps."""
    stored: tuple[int, ...]
    """The shape that the pieces have; `shape` may be the first rows of it, see `first`."""
    _starts: list[int] = attrs.field(init=False, repr=False)

    @_starts.default
    def _where_pieces_start(self) -> list[int]:
        return [0, *itertools.accumulate(map(len, self.pieces))]

    @property
    def nbytes(self) -> int:
        """Of its shape."""
        return math.prod(self.shape) * self.dtype.itemsize

    def element_size(self) -> int:
        """Bytes, as of a tensor."""
        return self.dtype.itemsize

    def first(self, rows: int) -> "Paged":
        """The first rows, along the last axis but one."""
        return attrs.evolve(self, shape=(*self.shape[:-2], rows, self.shape[-1]))

    def contiguous(self) -> Tensor:
        """A copy in plain host memory."""
        whole = torch.empty(self.shape, dtype=self.dtype)
        self.into(whole)
        return whole

    def fill(self, source: Tensor) -> None:
        """Copy a tensor of the stored shape and dtype here."""
        for there, here in self.transfers(source, max(1, self.nbytes)):
            here.copy_(there)

    def transfers(self, source: Tensor, size_bytes: int) -> Iterator[tuple[Tensor, Tensor]]:
        """What `fill` copies, one by one: bytes of the source, and where they go; at most so many
        at once."""
        flat = _bytes(source.contiguous())
        for at, part in self._parts(0, len(flat)):
            for low in range(0, len(part), size_bytes):
                here = part[low : low + size_bytes]
                yield flat[at + low :][: len(here)], here

    def into(self, target: Tensor) -> None:
        """Copy it to a tensor of this shape and dtype, which may be a part of another."""
        if not target.numel():
            return
        outer = self._outer(target)
        for index in itertools.product(*map(range, target.shape[:outer])):
            there = _bytes(target[index])
            start = self._offset(index)
            for at, here in self._parts(start, start + len(there)):
                there[at - start :][: len(here)].copy_(here, non_blocking=True)

    def _outer(self, target: Tensor) -> int:
        """Leading axes that are gone through one by one: what is behind them follows each other
        both here and there."""
        for axis in range(target.dim()):
            same = target.shape[axis + 1 :] == self.stored[axis + 1 :]
            if same and target[(0,) * axis].is_contiguous():
                return axis
        return target.dim()

    def _offset(self, index: Sequence[int]) -> int:
        """Bytes before the part of that leading index."""
        inner = [math.prod(self.stored[axis + 1 :]) for axis in range(len(index))]
        return sum(map(int.__mul__, index, inner)) * self.dtype.itemsize

    def _parts(self, start: int, stop: int) -> Iterator[tuple[int, Tensor]]:
        """The bytes [start, stop), each part with where it begins."""
        number = bisect(self._starts, start) - 1
        while start < stop:
            low = start - self._starts[number]
            part = self.pieces[number][low : low + stop - start]
            yield start, torch.from_numpy(part)
            start += len(part)
            number += 1


def size_of(buffers: Mapping[str, Tensor]) -> int:
    """Bytes of several buffers."""
    return sum(buffer.nbytes for buffer in buffers.values())


def placed(buffers: Mapping[str, Tensor], extents: Sequence[Extent]) -> Mapping[str, Paged]:
    """Room for copies of them, one behind the other without a gap.

    Wide elements come first, so no element lies across two pages.
    """
    left, room = list(extents), {}
    for name in sorted(buffers, key=lambda name: -buffers[name].element_size()):
        buffer = buffers[name]
        pieces, left = _split(left, buffer.nbytes)
        shape = tuple(buffer.shape)
        room[name] = Paged(buffer.dtype, shape, tuple(pieces), shape)
    return MappingProxyType({name: room[name] for name in buffers})


def first_rows(buffer: Tensor | Paged, rows: int) -> Tensor | Paged:
    """The first rows of a buffer, along its last axis but one."""
    return buffer.first(rows) if isinstance(buffer, Paged) else buffer[..., :rows, :]


def _split(extents: Sequence[np.ndarray], size: int) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """The first bytes of them, and the rest."""
    first, rest = [], []
    for extent in extents:
        first.append(extent[:size])
        rest.append(extent[size:])
        size -= len(first[-1])
    return [e for e in first if len(e)], [e for e in rest if len(e)]


def _bytes(part: Tensor) -> Tensor:
    return part.reshape(-1).view(torch.uint8)
