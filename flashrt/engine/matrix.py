"""A matrix of weights as callers see it: one tensor, or rows in several forms, one below the other.

Which form a row has is nobody's business but the products' (`linear.py`) and the loader's. A fused
matrix is a stack of what its checkpoint tensors are; neighbours of one form lie in one part.
"""

import itertools
from collections.abc import Iterator, Sequence

import attrs
import torch
from torch import Tensor

from flashrt.engine.forms import BLOCK, DENSE_PEAK, Form, Fp8Blocks, tensors

SLICE_NUMBERS = 1 << 22
"""Numbers of a packed matrix that are made dense at a time, so that a product never holds more
than DENSE_PEAK times as many bytes: 64 MiB."""

Part = Tensor | Form


@attrs.frozen(eq=False)
class Packed:
    """Rows of several forms. Has the attributes of a tensor [N, K] that callers ask for."""

    parts: tuple[Part, ...]
    dtype: torch.dtype
    """Of the rows that it is multiplied with."""
    starts: tuple[int, ...] = attrs.field(init=False)
    """The first row of each part; then N."""

    @starts.default
    def _starts(self) -> tuple[int, ...]:
        return tuple(itertools.accumulate(map(rows_of, self.parts), initial=0))

    def __len__(self) -> int:
        return self.starts[-1]

    @property
    def shape(self) -> torch.Size:
        """[N, K]."""
        return torch.Size((len(self), columns_of(self.parts[0])))

    @property
    def device(self) -> torch.device:
        """Where all parts lie."""
        part = self.parts[0]
        return part.device if isinstance(part, Tensor) else part.weight.device

    @property
    def nbytes(self) -> int:
        """Of all parts."""
        return sum(tensor.nbytes for part in self.parts for tensor in tensors_of(part))

    def cut(self, start: int, stop: int) -> "Packed":
        """Rows [start, stop), as views."""
        kept = []
        for part, first in zip(self.parts, self.starts, strict=False):
            lo, hi = max(start - first, 0), min(stop - first, rows_of(part))
            if lo < hi:
                kept.append(_cut(part, lo, hi))
        return Packed(tuple(kept), self.dtype)

    def layout(self) -> tuple[object, ...]:
        """What a product's way of working depends on, beside the values."""
        return tuple(
            (type(part).__name__, *(t.dtype for t in tensors_of(part)), rows_of(part))
            for part in self.parts
        )


Matrix = Tensor | Packed
"""[N, K]."""


@attrs.frozen(eq=False)
class Experts:
    """The matrices of E experts in one stack; what a tensor [E, N, K] is for plain ones."""

    stack: Packed
    """[E * N, K]."""
    rows: int
    """N."""

    def __len__(self) -> int:
        return len(self.stack) // self.rows

    @property
    def nbytes(self) -> int:
        """Of all experts."""
        return self.stack.nbytes

    def __getitem__(self, expert: int) -> Packed:
        return self.stack.cut(expert * self.rows, (expert + 1) * self.rows)


def sole_part(matrix: Matrix | Experts) -> Part | None:
    """What all rows lie in; None: there are several."""
    if isinstance(matrix, Tensor):
        return matrix
    parts = (matrix.stack if isinstance(matrix, Experts) else matrix).parts
    return parts[0] if len(parts) == 1 else None


def rows_of(part: Part) -> int:
    """How many."""
    return len(part) if isinstance(part, Tensor) else len(part.weight)


def columns_of(part: Part) -> int:
    """K."""
    return part.shape[1] if isinstance(part, Tensor) else part.columns


def apart(part: Part) -> Sequence[Part]:
    """Cut where blocks of scales begin anew, as a product reads them."""
    if not isinstance(part, Fp8Blocks) or part.period % BLOCK == 0:
        return [part]
    ends = range(part.period - part.first, rows_of(part), part.period)
    return [part.cut(*pair) for pair in itertools.pairwise((0, *ends, rows_of(part)))]


def tensors_of(part: Part) -> Sequence[Tensor]:
    """What a part takes memory for."""
    return [part] if isinstance(part, Tensor) else tensors(part)


def cut(matrix: Matrix, start: int, stop: int) -> Matrix:
    """Rows [start, stop), as a view."""
    return matrix[start:stop] if isinstance(matrix, Tensor) else matrix.cut(start, stop)


def _cut(part: Part, start: int, stop: int) -> Part:
    return part[start:stop] if isinstance(part, Tensor) else part.cut(start, stop)


def dense_slices(matrix: Packed, dtype: torch.dtype) -> Iterator[Tensor]:
    """Consecutive rows of `dtype`, as many at a time as SLICE_NUMBERS allow; all in all [N, K].

    Where the borders are depends on the matrix alone: products keep their bits.
    """
    count = max(1, SLICE_NUMBERS // matrix.shape[1])
    count -= count % BLOCK if count > BLOCK else 0
    for part in matrix.parts:
        for start in range(0, rows_of(part), count):
            rows = _cut(part, start, min(start + count, rows_of(part)))
            yield rows.to(dtype) if isinstance(rows, Tensor) else rows.dense(dtype)


def dense(matrix: Matrix, start: int, stop: int, dtype: torch.dtype) -> Tensor:
    """Rows [start, stop) of `dtype` [stop - start, K]: what every product is held against."""
    if isinstance(matrix, Tensor):
        return matrix[start:stop].to(dtype)
    return torch.cat(list(dense_slices(matrix.cut(start, stop), dtype)))


SLICE_BYTES = SLICE_NUMBERS * DENSE_PEAK
"""What a product with a packed matrix holds at most beside its rows and its result."""
