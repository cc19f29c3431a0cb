"""The product of few rows with a plain weight matrix, and what every product of few rows shares.

The weights are the left operand of the matrix unit and the rows its narrow right one, always
COLUMNS at a time, dead columns zero: one instruction whatever the number of rows. More rows are
further groups of columns against the same weight tile. Rows of a `HalfNorm` are divided by their
rms behind the sum.
"""

import triton
import triton.language as tl
from torch import Tensor

from flashrt.engine.kernels.chain import FOLLOWING, let_follow, wait
from flashrt.engine.kernels.norm import HalfNorm
from flashrt.engine.kernels.terms import WithTerms
from flashrt.engine.kernels.tiles import Tile

COLUMNS = 16
"""Rows of one group. Part of what fixes bits."""

ROWS_MAX = 64


@triton.jit
def columns(X, m, k, rows, K, EVEN: tl.constexpr):
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
def _put(Y, total, n, m, part, rows, N, STRIDE):
    """Store [n, m] sums as rows, STRIDE apart, of one part of Y [parts, rows, >= N]."""
    at = (part * rows + m[None, :]).to(tl.int64) * STRIDE + n[:, None]
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
    Y, total, SQUARES, out, m, part, rows, N, K, STRIDE, eps, BLOCKS: tl.constexpr,
    PADDED: tl.constexpr, GATED: tl.constexpr, TILE: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """Divide, gate and store one group's sums."""
    total = divided(total, SQUARES, m, rows, K, eps, BLOCKS, PADDED)
    if GATED:
        _put(Y, gated(total, TILE, COLUMNS), out, m, 0, rows, N, STRIDE)
    else:
        _put(Y, total, out, m, part, rows, N, STRIDE)


@triton.jit
def finish_groups(
    Y, sum0, sum1, sum2, sum3, SQUARES, out, m, part, rows, N, K, STRIDE, eps,
    BLOCKS: tl.constexpr, PADDED: tl.constexpr, GATED: tl.constexpr, TILE: tl.constexpr,
    COLUMNS: tl.constexpr, GROUPS: tl.constexpr,
):  # fmt: skip
    """The same of every group."""
    _finish(Y, sum0, SQUARES, out, m, part, rows, N, K, STRIDE, eps,
            BLOCKS, PADDED, GATED, TILE, COLUMNS)  # fmt: skip
    if GROUPS > 1:
        _finish(Y, sum1, SQUARES, out, m + COLUMNS, part, rows, N, K, STRIDE, eps,
                BLOCKS, PADDED, GATED, TILE, COLUMNS)  # fmt: skip
    if GROUPS > 2:
        _finish(Y, sum2, SQUARES, out, m + 2 * COLUMNS, part, rows, N, K, STRIDE, eps,
                BLOCKS, PADDED, GATED, TILE, COLUMNS)  # fmt: skip
        _finish(Y, sum3, SQUARES, out, m + 3 * COLUMNS, part, rows, N, K, STRIDE, eps,
                BLOCKS, PADDED, GATED, TILE, COLUMNS)  # fmt: skip


@triton.jit
def places(tile, N, GATED: tl.constexpr, TILE: tl.constexpr):
    """Columns of Y that a tile is for, and rows of weights [TILE]: gates first, then their ups."""
    i = tl.arange(0, TILE)
    if GATED:
        out = tile * (TILE // 2) + tl.arange(0, TILE // 2)
        inner = tile * (TILE // 2) + i % (TILE // 2)
        n = tl.minimum(inner, N - 1) + tl.where(i < TILE // 2, 0, N)
    else:
        out = tile * TILE + i
        n = tl.minimum(out, N - 1)
    return out, n


@triton.jit
def plain_sums(
    X, weights, live, rows, K, first, last, COLUMNS: tl.constexpr, GROUPS: tl.constexpr,
    TILE: tl.constexpr, DEPTH: tl.constexpr, STAGES: tl.constexpr, EVEN: tl.constexpr,
    SOME: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Sums [TILE, COLUMNS] of each group over the steps [first, last) of K. `weights`: where each
    row of weights begins [TILE, DEPTH]; with SOME, those that are not `live` are zeros."""
    m = tl.arange(0, COLUMNS)
    k = tl.arange(0, DEPTH)
    none = tl.zeros([TILE, COLUMNS], tl.float32)
    sum0, sum1, sum2, sum3 = none, none, none, none
    for step in tl.range(first, last, num_stages=STAGES):
        at = step * DEPTH
        if EVEN and SOME:
            w = tl.load(weights + at, mask=live[:, None], other=0.0)
        elif EVEN:
            w = tl.load(weights + at, eviction_policy="evict_first")
        else:
            w = tl.load(weights + at, mask=live[:, None] & ((k + at)[None, :] < K), other=0.0)
        x = columns(X, m, k + at, rows, K, EVEN)
        sum0 = tl.dot(w, x, sum0, input_precision=PRECISION)
        if GROUPS > 1:
            x = columns(X, m + COLUMNS, k + at, rows, K, EVEN)
            sum1 = tl.dot(w, x, sum1, input_precision=PRECISION)
        if GROUPS > 2:
            x = columns(X, m + 2 * COLUMNS, k + at, rows, K, EVEN)
            sum2 = tl.dot(w, x, sum2, input_precision=PRECISION)
            x = columns(X, m + 3 * COLUMNS, k + at, rows, K, EVEN)
            sum3 = tl.dot(w, x, sum3, input_precision=PRECISION)
    return sum0, sum1, sum2, sum3


@triton.jit
def plain_tile(
    X, W, Y, SQUARES, tile, part, rows, N, K, STRIDE, eps, BLOCKS: tl.constexpr,
    PADDED: tl.constexpr, PARTS: tl.constexpr, GATED: tl.constexpr, COLUMNS: tl.constexpr,
    GROUPS: tl.constexpr, TILE: tl.constexpr, DEPTH: tl.constexpr, STAGES: tl.constexpr,
    EVEN: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Y[part, m, n] = sum over one slice of K of X[m, k] W[n, k]; N counts Y's columns."""
    out, n = places(tile, N, GATED, TILE)
    weights = W + n[:, None].to(tl.int64) * K + tl.arange(0, DEPTH)[None, :]
    steps = tl.cdiv(K, DEPTH)
    sum0, sum1, sum2, sum3 = plain_sums(
        X, weights, n >= 0, rows, K, part * steps // PARTS, (part + 1) * steps // PARTS,
        COLUMNS, GROUPS, TILE, DEPTH, STAGES, EVEN, False, PRECISION,
    )  # fmt: skip
    let_follow()
    finish_groups(Y, sum0, sum1, sum2, sum3, SQUARES, out, tl.arange(0, COLUMNS), part, rows, N, K,
                  STRIDE, eps, BLOCKS, PADDED, GATED, TILE, COLUMNS, GROUPS)  # fmt: skip


@triton.jit(do_not_specialize=["rows"])
def _rows_linear(
    X, W, Y, SQUARES, rows, N, K, STRIDE, eps, BLOCKS: tl.constexpr, PADDED: tl.constexpr,
    PARTS: tl.constexpr, GATED: tl.constexpr, COLUMNS: tl.constexpr, GROUPS: tl.constexpr,
    TILE: tl.constexpr, DEPTH: tl.constexpr, STAGES: tl.constexpr, EVEN: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    """A program per tile and part."""
    wait()
    plain_tile(
        X, W, Y, SQUARES, tl.program_id(0), tl.program_id(1), rows, N, K, STRIDE, eps,
        BLOCKS, PADDED, PARTS, GATED, COLUMNS, GROUPS, TILE, DEPTH, STAGES, EVEN, PRECISION,
    )  # fmt: skip


Rows = Tensor | HalfNorm | WithTerms
"""[M <= 64, K], or what a product makes them of."""


def multiplied(x: Rows) -> Tensor:
    """What meets the weights."""
    return x if isinstance(x, Tensor) else x.rows


def checked(x: Rows) -> tuple[int, int]:
    """M and K of rows that fit. Raises ValueError for others."""
    rows = multiplied(x)
    if not 0 < len(rows) <= ROWS_MAX or not rows.is_contiguous():
        raise ValueError(f"rows of shape {tuple(rows.shape)}; 1 to {ROWS_MAX} contiguous ones fit")
    return len(rows), rows.shape[1]


def groups_of(rows: int, tile: Tile) -> dict[str, int]:
    """Options of a launch: groups of columns, and stages of its pipeline."""
    groups = triton.cdiv(rows, COLUMNS)
    # More groups fill more of the shared memory; three stages leave room for two programs.
    stages = tile.stages if groups == 1 else min(tile.stages, 3)
    return {"GROUPS": groups if groups < 3 else 4, "STAGES": stages, "num_stages": stages}


def halved(x: Rows) -> tuple[Tensor, float, dict[str, int]]:
    """What a product needs to end a norm: squares, eps, and options of a launch."""
    if not isinstance(x, HalfNorm):
        return multiplied(x), 0.0, {"BLOCKS": 0, "PADDED": 0}
    blocks = x.squares.shape[1]
    return x.squares, x.eps, {"BLOCKS": blocks, "PADDED": triton.next_power_of_2(blocks)}


def fill(x: Rows, weight: Tensor, y: Tensor, tile: Tile, *, gated: bool = False) -> None:
    """Fill y [parts, M, N], or [M, N] of one part, whose rows may be apart."""
    rows, k = checked(x)
    if not weight.is_contiguous():
        raise ValueError(f"a weight with strides {weight.stride()}; contiguous ones fit")
    n = y.shape[-1]
    parts = y.shape[0] if y.dim() == 3 else 1
    squares, eps, norm = halved(x)
    programs = triton.cdiv(n, tile.rows // 2 if gated else tile.rows)
    _rows_linear[(programs, parts)](
        multiplied(x), weight, y, squares, rows, n, k, y.stride(-2), eps, **norm,
        PARTS=parts, GATED=gated, COLUMNS=COLUMNS, TILE=tile.rows, DEPTH=tile.depth,
        EVEN=k % tile.depth == 0, PRECISION="ieee", num_warps=tile.warps,
        **groups_of(rows, tile), **FOLLOWING,
    )  # fmt: skip
