"""Products of few rows with a weight matrix, at the speed of reading the matrix once.

References: `flashrt.engine.linear.rows_linear`, `head_linear`, and `flashrt.engine.ops.silu_mul`.

The weights are the left operand of the matrix unit and the rows its narrow right one, always
COLUMNS at a time, dead columns zero: one instruction whatever the number of rows. More rows are
further groups of columns against the same weight tile. Rows of a `HalfNorm` are divided by their
rms behind the sum.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from flashrt.engine.kernels.chain import FOLLOWING, let_follow, wait
from flashrt.engine.kernels.norm import HalfNorm
from flashrt.engine.kernels.tiles import Tile, tile_for
from flashrt.engine.matrix import Experts, Matrix

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
def divided(total, SQUARES, m, rows, K, eps, BLOCKS: tl.constexpr, PADDED: tl.constexpr):
    """Sums [n, m] over the rms of row m, from the squares of its blocks; as they are without."""
    if BLOCKS > 0:
        b = tl.arange(0, PADDED)
        live = (m[:, None] < rows) & (b[None, :] < BLOCKS)
        squares = tl.load(SQUARES + m[:, None] * BLOCKS + b[None, :], mask=live, other=0.0)
        total = total * tl.rsqrt(tl.sum(squares, 1) / K + eps)[None, :]
    return total


@triton.jit
def _put(Y, total, n, m, part, rows, N):
    """Store [n, m] sums as rows of one part of Y [parts, rows, N]."""
    at = (part * rows + m[None, :]).to(tl.int64) * N + n[:, None]
    live = (m[None, :] < rows) & (n[:, None] < N)
    tl.store(Y + at, total.to(Y.dtype.element_ty), mask=live)


@triton.jit
def gated(total, TILE: tl.constexpr, COLUMNS: tl.constexpr):
    """silu(gate) * up: the first half of the tile's rows are gates, the second their ups."""
    halves = tl.permute(tl.reshape(total, (2, TILE // 2, COLUMNS)), (1, 2, 0))
    gate, up = tl.split(halves)
    return gate * tl.sigmoid(gate) * up


@triton.jit
def _finish(
    Y, total, SQUARES, out, m, part, rows, N, K, eps, BLOCKS: tl.constexpr, PADDED: tl.constexpr,
    GATED: tl.constexpr, TILE: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """Divide, gate and store one group's sums."""
    total = divided(total, SQUARES, m, rows, K, eps, BLOCKS, PADDED)
    if GATED:
        _put(Y, gated(total, TILE, COLUMNS), out, m, 0, rows, N)
    else:
        _put(Y, total, out, m, part, rows, N)


@triton.jit(do_not_specialize=["rows"])
def _rows_linear(
    X, W, Y, SQUARES, rows, N, K, eps, BLOCKS: tl.constexpr, PADDED: tl.constexpr,
    PARTS: tl.constexpr, GATED: tl.constexpr, COLUMNS: tl.constexpr, GROUPS: tl.constexpr,
    TILE: tl.constexpr, DEPTH: tl.constexpr, STAGES: tl.constexpr, EVEN: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    """Y[part, m, n] = sum over one slice of K of X[m, k] W[n, k]; N counts Y's columns."""
    wait()
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

    let_follow()
    _finish(Y, sum0, SQUARES, out, m, part, rows, N, K, eps, BLOCKS, PADDED, GATED, TILE, COLUMNS)
    if GROUPS > 1:
        _finish(Y, sum1, SQUARES, out, m + COLUMNS, part, rows, N, K, eps,
                BLOCKS, PADDED, GATED, TILE, COLUMNS)  # fmt: skip
    if GROUPS > 2:
        _finish(Y, sum2, SQUARES, out, m + 2 * COLUMNS, part, rows, N, K, eps,
                BLOCKS, PADDED, GATED, TILE, COLUMNS)  # fmt: skip
        _finish(Y, sum3, SQUARES, out, m + 3 * COLUMNS, part, rows, N, K, eps,
                BLOCKS, PADDED, GATED, TILE, COLUMNS)  # fmt: skip


Rows = Tensor | HalfNorm
"""[M <= 64, K], or what a product makes them of."""

Weight = Matrix | Experts
"""What a layer may hold; read is a plain [N, K]."""


def _launch(x: Rows, weight: Tensor, y: Tensor, tile: Tile, gated: bool = False) -> None:
    """Fill y [parts, M, N], or [M, N] of one part."""
    half = x if isinstance(x, HalfNorm) else None
    x = _multiplied(x)
    rows, k = x.shape
    if not 0 < rows <= ROWS_MAX or not x.is_contiguous() or not weight.is_contiguous():
        raise ValueError(f"rows of shape {tuple(x.shape)}; 1 to {ROWS_MAX} contiguous ones fit")
    n = y.shape[-1]
    parts = y.shape[0] if y.dim() == 3 else 1
    groups = triton.cdiv(rows, COLUMNS)
    # More groups fill more of the shared memory; three stages leave room for two programs.
    stages = tile.stages if groups == 1 else min(tile.stages, 3)
    programs = triton.cdiv(n, tile.rows // 2 if gated else tile.rows)
    blocks = half.squares.shape[1] if half else 0
    _rows_linear[(programs, parts)](
        x, weight, y, half.squares if half else x, rows, n, k, half.eps if half else 0.0,
        BLOCKS=blocks, PADDED=triton.next_power_of_2(blocks) if half else 0,
        PARTS=parts, GATED=gated, COLUMNS=COLUMNS, GROUPS=groups if groups < 3 else 4,
        TILE=tile.rows, DEPTH=tile.depth, STAGES=stages, EVEN=k % tile.depth == 0,
        PRECISION="ieee", num_warps=tile.warps, num_stages=stages,
        **FOLLOWING,
    )  # fmt: skip


def _multiplied(x: Rows) -> Tensor:
    """What meets the weights."""
    return x.rows if isinstance(x, HalfNorm) else x


def _plan(x: Rows, weight: Weight) -> tuple[Tensor, Tensor, Tile]:
    """The rows that are multiplied, the weight, and its tile."""
    if not isinstance(weight, Tensor):
        raise TypeError("there is no kernel for packed weights; `model_for` chooses torch for them")
    rows = _multiplied(x)
    n, k = weight.shape
    return rows, weight, tile_for(n, k, rows.element_size())


def rows_linear(x: Rows, weight: Weight) -> Tensor:
    """x [M <= 64, K] @ weight [N, K]^T -> [M, N] in x's dtype, row-invariant."""
    rows, weight, tile = _plan(x, weight)
    y = rows.new_empty(len(rows), len(weight))
    _launch(x, weight, y, tile)
    return y


def rows_linear_parts(x: Tensor, weight: Weight) -> Tensor:
    """The same product as [parts, M, N] float32, to be added in order by whoever reads it."""
    rows, weight, tile = _plan(x, weight)
    y = rows.new_empty(tile.parts, len(rows), len(weight), dtype=torch.float32)
    _launch(x, weight, y, tile)
    return y


def rows_silu_mul(x: Rows, gate_up: Weight) -> Tensor:
    """silu(x gate^T) * (x up^T) -> [M, I]; gate_up [2 I, K], gates first. Rounded once."""
    rows, gate_up, tile = _plan(x, gate_up)
    y = rows.new_empty(len(rows), len(gate_up) // 2)
    _launch(x, gate_up, y, tile, gated=True)
    return y


def head_linear(x: Rows, weight: Weight) -> Tensor:
    """Row-invariant logits [M, V] float32, sums unrounded."""
    rows, weight, tile = _plan(x, weight)
    y = rows.new_empty(len(rows), len(weight), dtype=torch.float32)
    _launch(x, weight, y, tile)
    return y
