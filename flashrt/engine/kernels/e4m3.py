"""The product of rows with a matrix of 8-bit or 4-bit weights, on the matrix unit of 8 bits.

Rows come as `Terms`. Weights of FP8 go from memory to the matrix unit as they lie; of int4 a byte's
halves are e4m3 numbers already, 512 times smaller than what they count, by one mask and one shift.
Every BLOCK columns have a sum of their own, which is scaled in float32. The unit keeps 14 digits of
such a sum: about 2^-11 of what a sum of 128 products is, less than bfloat16 keeps of a result.

A row's bits are its own whatever the number of columns on the right side of an instruction.
"""

from typing import Any, TypeGuard

import attrs
import torch
import triton
import triton.language as tl
from torch import Tensor

from flashrt.engine.forms import BLOCK, SPAN, Form, Fp8Blocks, Fp8Rows, Int4
from flashrt.engine.kernels.chain import FOLLOWING, let_follow, wait
from flashrt.engine.kernels.plain import (
    COLUMNS,
    Rows,
    checked,
    finish_groups,
    groups_of,
    halved,
    multiplied,
    places,
    plain_tile,
)
from flashrt.engine.kernels.terms import Terms
from flashrt.engine.kernels.tiles import (
    TAIL,
    Tile,
    e4m3_block_tile,
    e4m3_tile,
)

FP8_BLOCKS, FP8_ROWS, INT4 = tl.constexpr(0), tl.constexpr(1), tl.constexpr(2)

FEWEST = 8
"""Rows that meet a tile at least; fewer are as fast."""

UNIT = tl.constexpr(512.0)
"""e4m3 of the bits 0 .. 15 means this much less."""

LOW = tl.constexpr("and.b32 $0, $1, 0x0F0F0F0F;")
HIGH = tl.constexpr("{.reg .b32 t; shr.u32 t, $1, 4; and.b32 $0, t, 0x0F0F0F0F;}")


@triton.jit
def _low(w):
    """The lower half of each byte, as e4m3."""
    v = tl.inline_asm_elementwise(LOW, "=r,r", [w], tl.uint8, is_pure=True, pack=4)
    return v.to(tl.float8e4nv, bitcast=True)


@triton.jit
def _high(w):
    """The upper half."""
    v = tl.inline_asm_elementwise(HIGH, "=r,r", [w], tl.uint8, is_pure=True, pack=4)
    return v.to(tl.float8e4nv, bitcast=True)


@triton.jit
def _product(
    a, TERMS, k, start, rows, width, TILE: tl.constexpr, COLUMNS: tl.constexpr,
    CHAINED: tl.constexpr,
):  # fmt: skip
    """a [TILE, BLOCK] times both terms of rows from `start` on -> [TILE, COLUMNS].

    The terms are columns of one product, or with CHAINED two products in one sum: that waits for
    the first, and leaves registers for twice as many rows.
    """
    if CHAINED:
        m = start + tl.arange(0, COLUMNS)
        x = TERMS + (m * width)[None, :] + k[:, None]
        live = (m < rows)[None, :]
        d = tl.dot(a, tl.load(x + rows * width, mask=live, other=0.0))
        d = tl.dot(a, tl.load(x, mask=live, other=0.0), d)
    else:
        c = tl.arange(0, 2 * COLUMNS)
        m = start + c % COLUMNS
        x = TERMS + ((c // COLUMNS * rows + m) * width)[None, :] + k[:, None]
        both = tl.dot(a, tl.load(x, mask=(m < rows)[None, :], other=0.0))
        high, low = tl.split(tl.permute(tl.reshape(both, (TILE, 2, COLUMNS)), (0, 2, 1)))
        d = high + low
    return d


@triton.jit
def _less_zeros(
    d, PAIRS, XS, group, block, n, m, STEP, BLOCKS, XS_STEP, HALF: tl.constexpr
):  # fmt: skip
    """The sum d of one block of int4 numbers less their zeros, times their scales."""
    pair = tl.load(PAIRS + group * STEP + n)
    if HALF:
        scale = (pair >> 16).to(tl.int16).to(tl.float16, bitcast=True).to(tl.float32)
    else:
        scale = (pair & -65536).to(tl.float32, bitcast=True)
    zero = (pair << 16).to(tl.float32, bitcast=True)
    of_row = tl.load(XS + block * XS_STEP + m) * UNIT
    row_sum = tl.load(XS + (BLOCKS + block) * XS_STEP + m)
    return (d * of_row[None, :] - zero[:, None] * row_sum[None, :]) * scale[:, None]


@triton.jit
def _e4m3_tile(
    TERMS, XS, W, SCALE, Y, SQUARES, tile, part, start, rows, N, K, SCALES_K, FIRST, STRIDE,
    XS_STEP, eps, FORM: tl.constexpr, HALF: tl.constexpr, SHARE: tl.constexpr,
    BLOCKS: tl.constexpr, PADDED: tl.constexpr, PARTS: tl.constexpr, GATED: tl.constexpr,
    COLUMNS: tl.constexpr, CHAINED: tl.constexpr, TILE: tl.constexpr, STAGES: tl.constexpr,
    EVEN: tl.constexpr,
):  # fmt: skip
    """Y[part, m, n] = sum over one slice of K of X[m, k] W[n, k]; N counts Y's columns."""
    out, n = places(tile, N, GATED, TILE)
    m = start + tl.arange(0, COLUMNS)
    k = tl.arange(0, 128)
    blocks = tl.cdiv(K, 128)
    width = blocks * 128
    if FORM == INT4:
        steps, row_bytes = K // 256, K // 2
    else:
        steps, row_bytes = blocks, K
    weights = W + n[:, None].to(tl.int64) * row_bytes + k[None, :]
    total = tl.zeros([TILE, COLUMNS], tl.float32)
    for step in tl.range(part * steps // PARTS, (part + 1) * steps // PARTS, num_stages=STAGES):
        at = step * 128
        if EVEN:
            w = tl.load(weights + at, eviction_policy="evict_first")
        else:
            w = tl.load(weights + at, mask=(k + at)[None, :] < row_bytes, other=0.0)
        if FORM == INT4:
            d = _product(_low(w), TERMS, k + 2 * at, start, rows, width, TILE, COLUMNS, CHAINED)
            e = _product(
                _high(w), TERMS, k + 2 * at + 128, start, rows, width, TILE, COLUMNS, CHAINED
            )
            b = 2 * step
            total += _less_zeros(d, SCALE, XS, b // SHARE, b, n, m, SCALES_K, blocks, XS_STEP, HALF)
            b += 1
            total += _less_zeros(e, SCALE, XS, b // SHARE, b, n, m, SCALES_K, blocks, XS_STEP, HALF)
        else:
            d = _product(w, TERMS, k + at, start, rows, width, TILE, COLUMNS, CHAINED)
            of_row = tl.load(XS + step * XS_STEP + m)
            if FORM == FP8_BLOCKS:
                scale = tl.load(SCALE + (FIRST + n) // 128 * SCALES_K + step)
                total += d * (scale[:, None] * of_row[None, :])
            else:
                total += d * of_row[None, :]
    if FORM == FP8_ROWS:
        total = total * tl.load(SCALE + n)[:, None]

    let_follow()
    finish_groups(Y, total, total, total, total, SQUARES, out, m, part, rows, N, K, STRIDE, eps,
                  BLOCKS, PADDED, GATED, TILE, COLUMNS, 1)  # fmt: skip


@triton.jit(do_not_specialize=["rows"])
def _e4m3_linear(
    X, TERMS, XS, W, SCALE, TAIL, Y, SQUARES, rows, N, K, SCALES_K, FIRST, TAIL_N, STRIDE,
    XS_STEP, eps, FORM: tl.constexpr, HALF: tl.constexpr, SHARE: tl.constexpr,
    BLOCKS: tl.constexpr, PADDED: tl.constexpr, PARTS: tl.constexpr, GATED: tl.constexpr,
    COLUMNS: tl.constexpr, CHAINED: tl.constexpr, TILE: tl.constexpr, STAGES: tl.constexpr,
    EVEN: tl.constexpr, TAIL_COLUMNS: tl.constexpr, TAIL_GROUPS: tl.constexpr,
    TAIL_TILE: tl.constexpr, TAIL_DEPTH: tl.constexpr, TAIL_STAGES: tl.constexpr,
    TAIL_EVEN: tl.constexpr,
):  # fmt: skip
    """A program per COLUMNS rows, tile and part; before them those of a plain tail, whose columns
    of Y lie behind the others."""
    wait()
    tile, start = tl.program_id(1), tl.program_id(0) * COLUMNS
    if TAIL_TILE > 0:
        tails = tl.cdiv(TAIL_N, TAIL_TILE)
        if tile < tails:
            if start == 0:
                plain_tile(
                    X, TAIL, Y + N, SQUARES, tile, 0, rows, TAIL_N, K, STRIDE, eps, BLOCKS, PADDED,
                    1, False, TAIL_COLUMNS, TAIL_GROUPS, TAIL_TILE, TAIL_DEPTH, TAIL_STAGES,
                    TAIL_EVEN, "ieee",
                )  # fmt: skip
        else:
            _e4m3_tile(
                TERMS, XS, W, SCALE, Y, SQUARES, tile - tails, 0, start, rows, N, K, SCALES_K,
                FIRST, STRIDE, XS_STEP, eps, FORM, HALF, SHARE, BLOCKS, PADDED, 1, GATED, COLUMNS,
                CHAINED, TILE, STAGES, EVEN,
            )  # fmt: skip
    else:
        _e4m3_tile(
            TERMS, XS, W, SCALE, Y, SQUARES, tile, tl.program_id(2), start, rows, N, K, SCALES_K,
            FIRST, STRIDE, XS_STEP, eps, FORM, HALF, SHARE, BLOCKS, PADDED, PARTS, GATED, COLUMNS,
                CHAINED, TILE, STAGES, EVEN,
        )  # fmt: skip


Taken = Fp8Blocks | Fp8Rows | Int4
"""Forms that may be multiplied here."""


def takes(form: Form) -> TypeGuard[Taken]:
    """Whether this form is; int4 only where it lies wide."""
    if isinstance(form, Int4):
        return form.pairs is not None
    return isinstance(form, Fp8Blocks | Fp8Rows)


@attrs.frozen(eq=False)
class Read:
    """How a form is read: tensors as the kernel takes them, and what belongs to a launch."""

    kind: int
    weight: Tensor
    scale: Tensor
    step: int = 0
    """From the scales of one step to those of the next row of blocks (FP8) or group (int4)."""
    first: int = 0
    share: int = 1
    """Blocks of columns that share a scale (int4)."""

    @classmethod
    def of(cls, form: Taken) -> "Read":
        """Raises ValueError where blocks of scales begin anew inside."""
        match form:
            case Fp8Blocks():
                form.check_one()
                step = form.scale.stride(0)
                return cls(FP8_BLOCKS.value, form.weight, form.scale, step, form.first)
            case Fp8Rows():
                return cls(FP8_ROWS.value, form.weight, form.scale)
            case Int4():
                assert form.pairs is not None
                share = form.columns // len(form.pairs) // BLOCK
                weight = form.weight.view(torch.uint8)
                return cls(INT4.value, weight, form.pairs, form.pairs.stride(0), share=share)

    def constants(self, form: Taken) -> dict[str, Any]:
        """Of a launch."""
        half = isinstance(form, Int4) and form.scale.dtype == torch.float16
        even = form.columns % (SPAN if self.kind == INT4.value else BLOCK) == 0
        return {"FORM": self.kind, "HALF": half, "SHARE": self.share, "EVEN": even}


def tile_of(form: Form) -> Tile:
    """How a matrix is cut for few rows."""
    return e4m3_tile(type(form).__name__, len(form.weight), form.columns)


def block_tile_of(form: Form, rows: int) -> Tile:
    """The same for a block of `rows`."""
    return e4m3_block_tile(type(form).__name__, len(form.weight), form.columns, rows)


def fill(x: Rows, form: Taken, y: Tensor, tile: Tile, *, gated: bool = False) -> None:
    """Fill y [parts, M, N], or [M, N] of one part, whose rows may be apart; M <= 64."""
    rows, _ = checked(x)
    _launch(x, form, y, tile, _columns_for(rows, COLUMNS), gated=gated)


def fill_with_tail(x: Rows, form: Taken, tail: Tensor, y: Tensor) -> None:
    """The same for one part, and in y's last columns the product with a small plain matrix: beside
    the other, since by itself it takes too few programs."""
    rows, k = checked(x)
    tile = tile_of(form)
    options = {
        "TAIL_COLUMNS": COLUMNS, "TAIL_GROUPS": groups_of(rows, TAIL)["GROUPS"],
        "TAIL_TILE": TAIL.rows, "TAIL_DEPTH": TAIL.depth, "TAIL_STAGES": TAIL.stages,
        "TAIL_EVEN": k % TAIL.depth == 0,
    }  # fmt: skip
    columns = _columns_for(rows, COLUMNS)
    _launch(x, form, y, tile, columns, tail=tail, tail_options=options)


def fill_block(x: Rows, form: Taken, y: Tensor, tile: Tile, *, gated: bool = False) -> None:
    """The same for a block of any number of rows."""
    columns = _columns_for(len(multiplied(x)), tile.columns)
    _launch(x, form, y, tile, columns, gated=gated, chained=True)


def _columns_for(rows: int, most: int) -> int:
    return min(most, max(FEWEST, triton.next_power_of_2(rows)))


def terms_of(x: Rows) -> Terms:
    """What meets the weights: made where the rows were, or here."""
    if not isinstance(x, Tensor) and x.terms is not None:
        return x.terms
    rows = multiplied(x)
    if rows.dtype != torch.bfloat16:
        raise TypeError(f"packed weights meet bfloat16 rows, not {rows.dtype}: that is for torch")
    return Terms.of(rows)


_NO_TAIL = {
    "TAIL_COLUMNS": COLUMNS, "TAIL_GROUPS": 1, "TAIL_TILE": 0, "TAIL_DEPTH": 0, "TAIL_STAGES": 0,
    "TAIL_EVEN": True,
}  # fmt: skip


def _launch(
    x: Rows, form: Taken, y: Tensor, tile: Tile, columns: int, *, gated: bool = False,
    chained: bool = False, tail: Tensor | None = None, tail_options: dict[str, Any] = _NO_TAIL,
) -> None:  # fmt: skip
    terms, read, rows = terms_of(x), Read.of(form), multiplied(x)
    count, k = rows.shape
    tail_n = 0 if tail is None else len(tail)
    n, parts = y.shape[-1] - tail_n, y.shape[0] if y.dim() == 3 else 1
    squares, eps, norm = halved(x)
    tiles = triton.cdiv(n, tile.rows // 2 if gated else tile.rows)
    if tail is not None:
        tiles += triton.cdiv(tail_n, tail_options["TAIL_TILE"])
    _e4m3_linear[(triton.cdiv(count, columns), tiles, parts)](
        rows, terms.numbers, terms.scales, read.weight, read.scale, rows if tail is None else tail,
        y, squares, count, n, k, read.step, read.first, tail_n, y.stride(-2),
        terms.scales.stride(1), eps, **norm, **read.constants(form), PARTS=parts, GATED=gated,
        COLUMNS=columns, CHAINED=chained, TILE=tile.rows, STAGES=tile.stages,
        num_stages=tile.stages, num_warps=tile.warps, **tail_options, **FOLLOWING,
    )  # fmt: skip
