"""Products of few rows with a weight matrix, at the speed of reading the matrix once.

References: `flashrt.engine.linear.rows_linear`, `head_linear`, and `flashrt.engine.ops.silu_mul`.
A packed matrix is read as it lies. Of a stack of several forms, each part fills its own columns of
the result, with the bits that it has alone.
"""

from typing import TypeGuard

import torch
from torch import Tensor

from flashrt.engine.forms import Form
from flashrt.engine.kernels import e4m3, packed, plain
from flashrt.engine.kernels.norm import silu_mul
from flashrt.engine.kernels.plain import Rows, multiplied
from flashrt.engine.kernels.tiles import TAIL_ROWS, Tile, tile_for
from flashrt.engine.matrix import Experts, Matrix, Packed, Part, apart, rows_of

Weight = Matrix | Experts
"""What a layer may hold; read is an [N, K]."""


def rows_linear(x: Rows, weight: Weight) -> Tensor:
    """x [M <= 64, K] @ weight [N, K]^T -> [M, N] in x's dtype, row-invariant."""
    rows = multiplied(x)
    return _filled(x, weight, rows.new_empty(len(rows), len(_matrix(weight))))


def rows_linear_parts(x: Rows, weight: Weight) -> Tensor:
    """The same product as [parts, M, N] float32, to be added in order by whoever reads it."""
    parts = _parts(weight)
    count = tile_of(parts[0], x).parts if len(parts) == 1 else 1
    rows = multiplied(x)
    y = rows.new_empty(count, len(rows), len(_matrix(weight)), dtype=torch.float32)
    return _filled(x, weight, y)


def rows_silu_mul(x: Rows, gate_up: Weight) -> Tensor:
    """silu(x gate^T) * (x up^T) -> [M, I]; gate_up [2 I, K], gates first. Rounded once."""
    rows, parts = multiplied(x), _parts(gate_up)
    if len(parts) > 1:
        return silu_mul(head_linear(x, gate_up), rows.dtype)
    y = rows.new_empty(len(rows), len(_matrix(gate_up)) // 2)
    _fill(x, parts[0], y, gated=True)
    return y


def head_linear(x: Rows, weight: Weight) -> Tensor:
    """Row-invariant logits [M, V] float32, sums unrounded."""
    rows = multiplied(x)
    y = rows.new_empty(len(rows), len(_matrix(weight)), dtype=torch.float32)
    return _filled(x, weight, y)


def takes_terms(weight: Weight) -> bool:
    """Whether a product with it is quicker where its rows come with their terms."""
    if not isinstance(weight, Packed):
        return False
    return any(not isinstance(part, Tensor) and e4m3.takes(part) for part in weight.parts)


def _filled(x: Rows, weight: Weight, y: Tensor) -> Tensor:
    """y [parts, M, N] or [M, N], with the product in it."""
    start = at = 0
    parts = _parts(weight)
    while at < len(parts):
        part, after = parts[at], parts[at + 1] if at + 1 < len(parts) else None
        stop = start + rows_of(part)
        if _is_small(after) and not isinstance(part, Tensor) and y.dim() == 2:
            stop, at = stop + len(after), at + 1
            _fill_with_tail(x, part, after, y[..., start:stop])
        else:
            _fill(x, part, y[..., start:stop])
        start, at = stop, at + 1
    return y


def _is_small(part: Part | None) -> TypeGuard[Tensor]:
    """Whether it is computed beside a packed part before it."""
    return isinstance(part, Tensor) and len(part) <= TAIL_ROWS


def _fill(x: Rows, part: Part, y: Tensor, *, gated: bool = False) -> None:
    tile = tile_of(part, x)
    if isinstance(part, Tensor):
        plain.fill(x, part, y, tile, gated=gated)
    elif e4m3.takes(part):
        e4m3.fill(x, part, y, tile, gated=gated)
    else:
        packed.fill(x, part, y, tile, gated=gated)


def _fill_with_tail(x: Rows, part: Form, tail: Tensor, y: Tensor) -> None:
    if e4m3.takes(part):
        e4m3.fill_with_tail(x, part, tail, y)
    else:
        packed.fill_with_tail(x, part, tail, y)


def tile_of(part: Part, x: Rows) -> Tile:
    """How a part is cut for rows like these."""
    if isinstance(part, Tensor):
        n, k = part.shape
        return tile_for(n, k, multiplied(x).element_size())
    return e4m3.tile_of(part) if e4m3.takes(part) else packed.tile_of(part)


def _matrix(weight: Weight) -> Matrix:
    if isinstance(weight, Experts):
        raise TypeError("experts are no one matrix: `experts` has their products")
    return weight


def _parts(weight: Weight) -> list[Part]:
    """Below each other."""
    matrix = _matrix(weight)
    if isinstance(matrix, Tensor):
        return [matrix]
    return [one for part in matrix.parts for one in apart(part)]
