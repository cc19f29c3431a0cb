"""The product of rows with a packed weight matrix, made bfloat16 in registers as it is read.

Of few rows the family of `plain`: weights on the left of the matrix unit, COLUMNS rows at a time.
Of a block the same with more columns, and a row's bits may depend on how many. Weights reach the
matrix unit exactly; where columns share a scale, it multiplies their sum in float32, and where a
row has one, the whole. Only int4 of shorter groups than SHORTEST rounds each weight to bfloat16.
"""

import math
from typing import Any

import attrs
import torch
import triton
import triton.language as tl
from torch import Tensor

from flashrt.engine.forms import BLOCK, NVFP4_GROUP, Form, Fp8Blocks, Fp8Rows, Int4, Nvfp4
from flashrt.engine.kernels.chain import FOLLOWING, let_follow, wait
from flashrt.engine.kernels.plain import (
    COLUMNS,
    Rows,
    checked,
    columns,
    finish_groups,
    groups_of,
    halved,
    multiplied,
    places,
    plain_tile,
)
from flashrt.engine.kernels.tiles import Tile, packed_block_tile, packed_tile, tile_for
from flashrt.engine.kernels.unpack import (
    NVFP4_UNIT,
    PAIRS_OF_BYTES,
    PAIRS_OF_NIBBLES,
    fp8_pair,
    int4_pair,
    int4_zero,
    nvfp4_pair,
    nvfp4_scale,
    spread,
    times,
)

FP8_BLOCKS = tl.constexpr(0)
FP8_ROWS = tl.constexpr(1)
INT4 = tl.constexpr(2)
INT4_SHORT = tl.constexpr(3)
NVFP4 = tl.constexpr(4)

SHORTEST = 64
"""int4: columns of a group whose sum is scaled behind the product; so deep is a step at least."""


@triton.jit
def scales(
    SCALE, n, at, K, SCALES_K, FIRST, FORM: tl.constexpr, GROUP: tl.constexpr,
    DEPTH: tl.constexpr, UNIT: tl.constexpr, EVEN: tl.constexpr,
):  # fmt: skip
    """Of the step at column `at`: one a row, or [TILE, DEPTH // UNIT] of runs of UNIT columns."""
    if FORM == FP8_BLOCKS:
        s = tl.load(SCALE + (FIRST + n) // GROUP * SCALES_K + at // GROUP)
    elif FORM == INT4:
        s = tl.load(SCALE + n * SCALES_K + at // GROUP)
    else:
        run = tl.arange(0, DEPTH // UNIT)
        if UNIT == GROUP:
            group = at // GROUP + run
        else:
            group = (at + run * UNIT) // GROUP
        found = SCALE + n[:, None] * SCALES_K + group[None, :]
        if EVEN:
            s = tl.load(found)
        else:
            s = tl.load(found, mask=(at + run * UNIT)[None, :] < K, other=0)
    return s


@triton.jit
def _pair(
    w, scale, zero, pair: tl.constexpr, FORM: tl.constexpr, PAIRS: tl.constexpr,
    TILE: tl.constexpr, WORDS: tl.constexpr,
):  # fmt: skip
    """Two columns of each word, as bfloat16 [TILE, 2 WORDS]."""
    if PAIRS == 2:
        a = fp8_pair(w, pair, TILE, WORDS)
    elif FORM == NVFP4:
        a = nvfp4_pair(w, scale, pair, TILE, WORDS)
    else:
        a = int4_pair(w, zero, pair, TILE, WORDS)
        if FORM == INT4_SHORT:
            a = times(a, scale)
    return a


@triton.jit
def _weights(
    w, scale, zero, FORM: tl.constexpr, PAIRS: tl.constexpr, TILE: tl.constexpr,
    WORDS: tl.constexpr,
):  # fmt: skip
    """All columns of words [TILE, WORDS]: the first pair of each word, then the second, ..."""
    a0 = _pair(w, scale, zero, 0, FORM, PAIRS, TILE, WORDS)
    a1 = _pair(w, scale, zero, 1, FORM, PAIRS, TILE, WORDS)
    if PAIRS == 2:
        a = tl.permute(tl.join(a0, a1), (0, 2, 1))
    else:
        a2 = _pair(w, scale, zero, 2, FORM, PAIRS, TILE, WORDS)
        a3 = _pair(w, scale, zero, 3, FORM, PAIRS, TILE, WORDS)
        a = tl.permute(tl.join(tl.join(a0, a2), tl.join(a1, a3)), (0, 2, 3, 1))
    return tl.reshape(a, (TILE, 2 * PAIRS * WORDS))


@triton.jit
def step_weights(
    weights, SCALE, ZERO, n, step, K, WORDS_K, SCALES_K, FIRST, FORM: tl.constexpr,
    PAIRS: tl.constexpr, GROUP: tl.constexpr, UNIT: tl.constexpr, TILE: tl.constexpr,
    DEPTH: tl.constexpr, EVEN: tl.constexpr,
):  # fmt: skip
    """The weights [TILE, DEPTH] of one step, as `_weights` orders them, with what scales them
    inside the product."""
    WORDS: tl.constexpr = DEPTH // (2 * PAIRS)
    COUNT: tl.constexpr = DEPTH // UNIT
    at = step * DEPTH
    if EVEN:
        w = tl.load(weights + step * WORDS, eviction_policy="evict_first")
    else:
        inside = (tl.arange(0, WORDS) + step * WORDS)[None, :] < WORDS_K
        w = tl.load(weights + step * WORDS, mask=inside, other=0)
    scale, zero = 0, 0
    if (FORM == NVFP4) | (FORM == INT4_SHORT):
        scale = scales(SCALE, n, at, K, SCALES_K, FIRST, FORM, GROUP, DEPTH, UNIT, EVEN)
        scale = nvfp4_scale(scale) if FORM == NVFP4 else scale.to(tl.bfloat16)
        scale = spread(scale, TILE, COUNT, WORDS)
    if FORM == INT4_SHORT:
        zero = scales(ZERO, n, at, K, SCALES_K, FIRST, FORM, GROUP, DEPTH, UNIT, EVEN)
        zero = spread(int4_zero(zero), TILE, COUNT, WORDS)
    if FORM == INT4:
        zero = scales(ZERO, n, at, K, SCALES_K, FIRST, FORM, GROUP, DEPTH, UNIT, EVEN)
        zero = tl.broadcast_to(int4_zero(zero)[:, None], (TILE, 2 * WORDS))
    return _weights(w, scale, zero, FORM, PAIRS, TILE, WORDS)


@triton.jit
def ordered(DEPTH: tl.constexpr, WORDS: tl.constexpr, PAIRS: tl.constexpr):
    """The columns of a step as `_weights` has them; neighbours stay neighbours, so that rows can be
    copied by two."""
    i = tl.arange(0, DEPTH)
    return i // 2 % WORDS * (2 * PAIRS) + i // 2 // WORDS * 2 + i % 2


@triton.jit
def first_scale(
    SCALE, ROW_SCALE, n, at, K, SCALES_K, FIRST, FORM: tl.constexpr, GROUP: tl.constexpr,
    TILE: tl.constexpr, DEPTH: tl.constexpr, UNIT: tl.constexpr, EVEN: tl.constexpr,
):  # fmt: skip
    """[TILE]: what multiplies the sums of the first step, or of every one."""
    if (FORM == FP8_BLOCKS) | (FORM == INT4):
        s = scales(SCALE, n, at, K, SCALES_K, FIRST, FORM, GROUP, DEPTH, UNIT, EVEN)
    elif FORM == FP8_ROWS:
        s = tl.load(ROW_SCALE + n)
    elif FORM == NVFP4:
        s = tl.load(ROW_SCALE + n) / NVFP4_UNIT
    else:
        s = tl.full([TILE], 1.0, tl.float32)
    return s


@triton.jit
def _packed_tile(
    X, W, SCALE, ZERO, ROW_SCALE, Y, SQUARES, tile, part, m, rows, N, K, WORDS_K, SCALES_K, FIRST,
    STRIDE, eps, FORM: tl.constexpr, PAIRS: tl.constexpr, GROUP: tl.constexpr, UNIT: tl.constexpr,
    BLOCKS: tl.constexpr, PADDED: tl.constexpr, PARTS: tl.constexpr, GATED: tl.constexpr,
    COLUMNS: tl.constexpr, GROUPS: tl.constexpr, TILE: tl.constexpr, DEPTH: tl.constexpr,
    STAGES: tl.constexpr, EVEN: tl.constexpr,
):  # fmt: skip
    """Y[part, m, n] = sum over one slice of K of X[m, k] W[n, k]; N counts Y's columns."""
    WORDS: tl.constexpr = DEPTH // (2 * PAIRS)
    out, n = places(tile, N, GATED, TILE)
    k = ordered(DEPTH, WORDS, PAIRS)
    weights = W + n[:, None].to(tl.int64) * WORDS_K + tl.arange(0, WORDS)[None, :]
    steps = tl.cdiv(K, DEPTH)
    start, stop = part * steps // PARTS, (part + 1) * steps // PARTS

    none = tl.zeros([TILE, COLUMNS], tl.float32)
    sum0, sum1, sum2, sum3 = none, none, none, none
    behind = first_scale(SCALE, ROW_SCALE, n, start * DEPTH, K, SCALES_K, FIRST, FORM, GROUP,
                         TILE, DEPTH, UNIT, EVEN)  # fmt: skip
    for step in tl.range(start, stop, num_stages=STAGES):
        at = step * DEPTH
        a = step_weights(weights, SCALE, ZERO, n, step, K, WORDS_K, SCALES_K, FIRST, FORM, PAIRS,
                         GROUP, UNIT, TILE, DEPTH, EVEN)  # fmt: skip
        factor = behind.to(tl.float32)[:, None]
        if (FORM == FP8_BLOCKS) | (FORM == INT4):
            # One step ahead, so that the sums do not wait for them.
            ahead = tl.minimum(at + DEPTH, K - 1)
            behind = scales(SCALE, n, ahead, K, SCALES_K, FIRST, FORM, GROUP,
                            DEPTH, UNIT, EVEN)  # fmt: skip
        # Each step has a sum of its own: one that went on would be waited for at each instruction.
        sum0 += tl.dot(a, columns(X, m, k + at, rows, K, EVEN)) * factor
        if GROUPS > 1:
            sum1 += tl.dot(a, columns(X, m + COLUMNS, k + at, rows, K, EVEN)) * factor
        if GROUPS > 2:
            sum2 += tl.dot(a, columns(X, m + 2 * COLUMNS, k + at, rows, K, EVEN)) * factor
            sum3 += tl.dot(a, columns(X, m + 3 * COLUMNS, k + at, rows, K, EVEN)) * factor

    let_follow()
    finish_groups(Y, sum0, sum1, sum2, sum3, SQUARES, out, m, part, rows, N, K, STRIDE, eps,
                  BLOCKS, PADDED, GATED, TILE, COLUMNS, GROUPS)  # fmt: skip


@triton.jit(do_not_specialize=["rows"])
def _packed_linear(
    X, W, SCALE, ZERO, ROW_SCALE, TAIL, Y, SQUARES, rows, N, K, WORDS_K, SCALES_K, FIRST, TAIL_N,
    STRIDE, eps, FORM: tl.constexpr, PAIRS: tl.constexpr, GROUP: tl.constexpr, UNIT: tl.constexpr,
    BLOCKS: tl.constexpr, PADDED: tl.constexpr, PARTS: tl.constexpr, GATED: tl.constexpr,
    COLUMNS: tl.constexpr, GROUPS: tl.constexpr, TILE: tl.constexpr, DEPTH: tl.constexpr,
    STAGES: tl.constexpr, EVEN: tl.constexpr, TAIL_TILE: tl.constexpr, TAIL_DEPTH: tl.constexpr,
    TAIL_STAGES: tl.constexpr, TAIL_EVEN: tl.constexpr,
):  # fmt: skip
    """A program per group of rows in a block, tile and part; before them those of a plain tail,
    whose columns of Y lie behind the others."""
    wait()
    tile = tl.program_id(1)
    m = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    if TAIL_TILE > 0:
        tails = tl.cdiv(TAIL_N, TAIL_TILE)
        if tile < tails:
            plain_tile(
                X, TAIL, Y + N, SQUARES, tile, 0, rows, TAIL_N, K, STRIDE, eps, BLOCKS, PADDED,
                1, False, COLUMNS, GROUPS, TAIL_TILE, TAIL_DEPTH, TAIL_STAGES, TAIL_EVEN, "ieee",
            )  # fmt: skip
        else:
            _packed_tile(
                X, W, SCALE, ZERO, ROW_SCALE, Y, SQUARES, tile - tails, 0, m, rows, N, K, WORDS_K,
                SCALES_K, FIRST, STRIDE, eps, FORM, PAIRS, GROUP, UNIT, BLOCKS, PADDED, 1, GATED,
                COLUMNS, GROUPS, TILE, DEPTH, STAGES, EVEN,
            )  # fmt: skip
    else:
        _packed_tile(
            X, W, SCALE, ZERO, ROW_SCALE, Y, SQUARES, tile, tl.program_id(2), m, rows, N, K,
            WORDS_K, SCALES_K, FIRST, STRIDE, eps, FORM, PAIRS, GROUP, UNIT, BLOCKS, PADDED,
            PARTS, GATED, COLUMNS, GROUPS, TILE, DEPTH, STAGES, EVEN,
        )  # fmt: skip


@attrs.frozen(eq=False)
class Read:
    """How a form is read: tensors as the kernel takes them, and constants of a launch."""

    kind: int
    words: Tensor
    scale: Tensor
    zero: Tensor
    row_scale: Tensor
    group: int
    """Columns that share a scale."""
    first: int = 0

    @classmethod
    def of(cls, form: Form) -> "Read":
        """Of any of them. Raises ValueError where blocks of scales begin anew inside."""
        words = form.weight.view(torch.int32)
        match form:
            case Fp8Blocks():
                form.check_one()
                return cls(FP8_BLOCKS.value, words, form.scale, words, words, BLOCK, form.first)
            case Fp8Rows():
                return cls(FP8_ROWS.value, words, words, words, form.scale, BLOCK)
            case Int4(pairs=pairs):
                if pairs is not None:
                    raise TypeError("wide int4 is for `e4m3`")
                group = form.columns // form.scale.shape[1]
                kind = (INT4 if step_of(group) >= SHORTEST else INT4_SHORT).value
                return cls(kind, words, form.scale, form.zero, words, group)
            case Nvfp4():
                scale = form.scale.view(torch.uint8)
                return cls(NVFP4.value, words, scale, words, form.row_scale, NVFP4_GROUP)

    @property
    def tensors(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """In the kernel's order."""
        return self.words, self.scale, self.zero, self.row_scale

    def constants(self, depth: int) -> dict[str, int]:
        """Of steps of `depth` columns."""
        bytes_ = self.kind in (FP8_BLOCKS.value, FP8_ROWS.value)
        pairs = PAIRS_OF_BYTES if bytes_ else PAIRS_OF_NIBBLES
        group, unit = self.group, math.gcd(self.group, depth)
        return {"FORM": self.kind, "PAIRS": pairs, "GROUP": group, "UNIT": unit}

    def fitted(self, tile: Tile) -> Tile:
        """With steps that share a scale where it is behind the product."""
        if self.kind in (FP8_BLOCKS.value, INT4.value):
            return attrs.evolve(tile, depth=min(tile.depth, step_of(self.group)))
        return tile


def step_of(group: int) -> int:
    """The deepest step that no border of a group falls into."""
    return math.gcd(group, BLOCK)


def tile_of(form: Form) -> Tile:
    """How a packed matrix is cut for few rows."""
    n, k = len(form.weight), form.columns
    return Read.of(form).fitted(packed_tile(type(form).__name__, n, k))


def block_tile_of(form: Form, rows: int) -> Tile:
    """The same for a block of `rows`."""
    n, k = len(form.weight), form.columns
    return Read.of(form).fitted(packed_block_tile(type(form).__name__, n, k, rows))


def fill(x: Rows, form: Form, y: Tensor, tile: Tile, *, gated: bool = False) -> None:
    """Fill y [parts, M, N], or [M, N] of one part, whose rows may be apart; M <= 64."""
    rows, _ = checked(x)
    options = {"COLUMNS": COLUMNS, **groups_of(rows, tile)}
    _launch(x, form, y, tile, options, gated=gated)


def fill_with_tail(x: Rows, form: Form, tail: Tensor, y: Tensor, tile: Tile | None = None) -> None:
    """The same for one part, and in y's last columns the product with a small plain matrix: beside
    the other, since by itself it takes too few programs."""
    rows, k = checked(x)
    tile = tile or tile_of(form)
    small = tile_for(len(tail), k, tail.element_size())
    constants = {
        "TAIL_TILE": small.rows, "TAIL_DEPTH": small.depth, "TAIL_STAGES": small.stages,
        "TAIL_EVEN": k % small.depth == 0,
    }  # fmt: skip
    options = {"COLUMNS": COLUMNS, **groups_of(rows, tile), **constants}
    _launch(x, form, y, tile, options, tail=tail)


def fill_block(x: Tensor, form: Form, y: Tensor, tile: Tile, *, gated: bool = False) -> None:
    """The same for a block of any number of rows."""
    widest = min(tile.columns, max(COLUMNS, triton.next_power_of_2(len(x))))
    options = {"COLUMNS": widest, "GROUPS": 1, "STAGES": tile.stages, "num_stages": tile.stages}
    _launch(x, form, y, tile, options, gated=gated)


_NO_TAIL = {"TAIL_TILE": 0, "TAIL_DEPTH": 0, "TAIL_STAGES": 0, "TAIL_EVEN": True}


def _launch(
    x: Rows, form: Form, y: Tensor, tile: Tile, options: dict[str, Any], *,
    gated: bool = False, tail: Tensor | None = None,
) -> None:  # fmt: skip
    rows, read = multiplied(x), Read.of(form)
    if rows.dtype != torch.bfloat16:
        raise TypeError(f"packed weights meet bfloat16 rows, not {rows.dtype}: that is for torch")
    count, k = rows.shape
    tail_n = 0 if tail is None else len(tail)
    n, parts = y.shape[-1] - tail_n, y.shape[0] if y.dim() == 3 else 1
    squares, eps, norm = halved(x)
    options = {**_NO_TAIL, **options}
    tiles = triton.cdiv(n, tile.rows // 2 if gated else tile.rows)
    if tail is not None:
        tiles += triton.cdiv(tail_n, options["TAIL_TILE"])
    groups = triton.cdiv(count, options["COLUMNS"] * options["GROUPS"])
    _packed_linear[(groups, tiles, parts)](
        rows, *read.tensors, rows if tail is None else tail, y, squares, count, n, k,
        read.words.shape[1], read.scale.shape[-1], read.first, tail_n, y.stride(-2), eps,
        **norm, **read.constants(tile.depth), PARTS=parts, GATED=gated, TILE=tile.rows,
        DEPTH=tile.depth, EVEN=k % tile.depth == 0, num_warps=tile.warps, **options, **FOLLOWING,
    )  # fmt: skip
