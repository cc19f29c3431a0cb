"""Products of few rows with a weight matrix, at the speed of reading the matrix once.

References: `flashrt.engine.linear.rows_linear`, `head_linear`, and `flashrt.engine.ops.silu_mul`.

The weights are the left operand of the matrix unit and the rows its narrow right one, always
COLUMNS at a time, dead columns zero: one instruction whatever the number of rows. More rows are
further groups of columns against the same weight tile.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from flashrt.engine.kernels.tiles import Tile, tile_for

COLUMNS = 16
"""Rows of one group. Part of what fixes bits."""

ROWS_MAX = 64


@triton.jit
def _columns(X, m, k, rows, K, EVEN: tl.constexpr):
    """X^T[k, m] with zero columns from `rows` on."""
    live = m[None, :] < rows
    if not EVEN:
        live = live & (k[:, None] < K)
    return tl.load(X + m[None, :] * K + k[:, None], mask=live, other=0.0)


@triton.jit
def _put(Y, total, n, m, part, rows, N):
    """Store [n, m] sums as rows of one part of Y [parts, rows, N]."""
    at = (part * rows + m[None, :]).to(tl.int64) * N + n[:, None]
    live = (m[None, :] < rows) & (n[:, None] < N)
    tl.store(Y + at, total.to(Y.dtype.element_ty), mask=live)


@triton.jit
def _put_gated(Y, total, pair, m, rows, N, TILE: tl.constexpr, COLUMNS: tl.constexpr):
    """silu(gate) * up: the first half of the tile's rows are gates, the second their ups."""
    halves = tl.permute(tl.reshape(total, (2, TILE // 2, COLUMNS)), (1, 2, 0))
    gate, up = tl.split(halves)
    _put(Y, gate * tl.sigmoid(gate) * up, pair, m, 0, rows, N)


@triton.jit(do_not_specialize=["rows"])
def _rows_linear(
    X, W, Y, rows, N, K,
    PARTS: tl.constexpr, GATED: tl.constexpr, COLUMNS: tl.constexpr, GROUPS: tl.constexpr,
    TILE: tl.constexpr, DEPTH: tl.constexpr, STAGES: tl.constexpr, EVEN: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    """Y[part, m, n] = sum over one slice of K of X[m, k] W[n, k]; N counts Y's columns."""
    part = tl.program_id(1)
    i = tl.arange(0, TILE)
    if GATED:
        out = tl.program_id(0) * (TILE // 2) + tl.arange(0, TILE // 2)
        inner = tl.program_id(0) * (TILE // 2) + i % (TILE // 2)
        n = tl.minimum(inner, N - 1) + tl.where(i < TILE // 2, 0, N)
    else:
        out = tl.program_id(0) * TILE + i
        n = tl.minimum(out, N - 1)
    m = tl.arange(0, COLUMNS)
    k = tl.arange(0, DEPTH)
    weights = W + n[:, None].to(tl.int64) * K + k[None, :]
    steps = tl.cdiv(K, DEPTH)

    sum0 = tl.zeros([TILE, COLUMNS], tl.float32)
    if GROUPS > 1:
        sum1 = tl.zeros([TILE, COLUMNS], tl.float32)
    if GROUPS > 2:
        sum2 = tl.zeros([TILE, COLUMNS], tl.float32)
        sum3 = tl.zeros([TILE, COLUMNS], tl.float32)
    for step in tl.range(part * steps // PARTS, (part + 1) * steps // PARTS, num_stages=STAGES):
        at = step * DEPTH
        if EVEN:
            w = tl.load(weights + at, eviction_policy="evict_first")
        else:
            w = tl.load(weights + at, mask=(k + at)[None, :] < K, other=0.0)
        x = _columns(X, m, k + at, rows, K, EVEN)
        sum0 = tl.dot(w, x, sum0, input_precision=PRECISION)
        if GROUPS > 1:
            x = _columns(X, m + COLUMNS, k + at, rows, K, EVEN)
            sum1 = tl.dot(w, x, sum1, input_precision=PRECISION)
        if GROUPS > 2:
            x = _columns(X, m + 2 * COLUMNS, k + at, rows, K, EVEN)
            sum2 = tl.dot(w, x, sum2, input_precision=PRECISION)
            x = _columns(X, m + 3 * COLUMNS, k + at, rows, K, EVEN)
            sum3 = tl.dot(w, x, sum3, input_precision=PRECISION)

    if GATED:
        _put_gated(Y, sum0, out, m, rows, N, TILE, COLUMNS)
        if GROUPS > 1:
            _put_gated(Y, sum1, out, m + COLUMNS, rows, N, TILE, COLUMNS)
        if GROUPS > 2:
            _put_gated(Y, sum2, out, m + 2 * COLUMNS, rows, N, TILE, COLUMNS)
            _put_gated(Y, sum3, out, m + 3 * COLUMNS, rows, N, TILE, COLUMNS)
    else:
        _put(Y, sum0, out, m, part, rows, N)
        if GROUPS > 1:
            _put(Y, sum1, out, m + COLUMNS, part, rows, N)
        if GROUPS > 2:
            _put(Y, sum2, out, m + 2 * COLUMNS, part, rows, N)
            _put(Y, sum3, out, m + 3 * COLUMNS, part, rows, N)


def _launch(x: Tensor, weight: Tensor, y: Tensor, tile: Tile, gated: bool = False) -> None:
    """Fill y [parts, M, N], or [M, N] of one part."""
    rows, k = x.shape
    if not 0 < rows <= ROWS_MAX or not x.is_contiguous() or not weight.is_contiguous():
        raise ValueError(f"rows of shape {tuple(x.shape)}; 1 to {ROWS_MAX} contiguous ones fit")
    n = y.shape[-1]
    parts = y.shape[0] if y.dim() == 3 else 1
    groups = triton.cdiv(rows, COLUMNS)
    # More groups fill more of the shared memory; three stages leave room for two programs.
    stages = tile.stages if groups == 1 else min(tile.stages, 3)
    programs = triton.cdiv(n, tile.rows // 2 if gated else tile.rows)
    _rows_linear[(programs, parts)](
        x, weight, y, rows, n, k,
        PARTS=parts, GATED=gated, COLUMNS=COLUMNS, GROUPS=groups if groups < 3 else 4,
        TILE=tile.rows, DEPTH=tile.depth, STAGES=stages, EVEN=k % tile.depth == 0,
        PRECISION="ieee", num_warps=tile.warps, num_stages=stages,
    )  # fmt: skip


def rows_linear(x: Tensor, weight: Tensor) -> Tensor:
    """x [M <= 64, K] @ weight [N, K]^T -> [M, N] in x's dtype, row-invariant."""
    n, k = weight.shape
    y = x.new_empty(len(x), n)
    _launch(x, weight, y, tile_for(n, k, x.element_size()))
    return y


def rows_linear_parts(x: Tensor, weight: Tensor) -> Tensor:
    """The same product as [parts, M, N] float32, to be added in order by whoever reads it."""
    n, k = weight.shape
    tile = tile_for(n, k, x.element_size())
    y = torch.empty(tile.parts, len(x), n, dtype=torch.float32, device=x.device)
    _launch(x, weight, y, tile)
    return y


def rows_silu_mul(x: Tensor, gate_up: Tensor) -> Tensor:
    """silu(x gate^T) * (x up^T) -> [M, I]; gate_up [2 I, K], gates first. Rounded once."""
    n, k = gate_up.shape
    y = x.new_empty(len(x), n // 2)
    _launch(x, gate_up, y, tile_for(n, k, x.element_size()), gated=True)
    return y


def head_linear(x: Tensor, weight: Tensor) -> Tensor:
    """Row-invariant logits [M, V] float32, sums unrounded."""
    n, k = weight.shape
    y = torch.empty(len(x), n, dtype=torch.float32, device=x.device)
    _launch(x, weight, y, tile_for(n, k, x.element_size()))
    return y
