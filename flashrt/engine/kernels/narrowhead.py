"""The output head in 8 bits: scores that are read in half the time, and how far off they may be.

Drafts are chosen by these scores as they are: a draft only proposes. What is to be the best id
itself is found by `besthead` among those that the bounds leave.

Of a row x the product takes x = unit * (128 * HIGH + LOW) + d, both terms whole numbers of 8 bits
and the unit a power of two: all eight digits of a bfloat16 number down to 2^-6 of the row's largest
one, and of smaller ones down to 2^-14 of that. So both products with the weights are whole numbers,
exact whatever their order is.
"""

import attrs
import torch
import triton
import triton.language as tl
from torch import Tensor

from flashrt.engine.kernels.chain import FOLLOWING, follow, let_follow, wait
from flashrt.engine.kernels.linear import head_linear
from flashrt.engine.kernels.plain import ROWS_MAX, checked, columns
from flashrt.engine.kernels.tiles import NARROW
from flashrt.engine.matrix import Matrix
from flashrt.engine.narrow import NarrowMatrix

MARKS = 1 + 2 * ROWS_MAX
"""int64 numbers that the kernels of one choice leave each other: how many ids may be the best, and
for each row what its best score is not below, and its best pair of a score and an id."""

LOWER, BEST = tl.constexpr(1), tl.constexpr(1 + ROWS_MAX)
NONE = tl.constexpr(-(2**63))
_DIGITS = tl.constexpr(13)
"""Of two in the largest number of a row, beside its first."""
_EXPONENT_MIN = tl.constexpr(-113)
_LEAST = tl.constexpr(2.0**-90)
"""What sums are off by where numbers are too small for float32."""


@triton.jit
def ordered(value):
    """float32 as int32 that rise with it, both zeros one number and every NaN the largest."""
    value = tl.where(value == 0.0, 0.0, value)
    bits = value.to(tl.int32, bitcast=True)
    return tl.where(value == value, bits ^ ((bits >> 31) & 0x7FFFFFFF), 0x7FC00000)


@triton.jit
def unordered(bits):
    """The way back."""
    return (bits ^ ((bits >> 31) & 0x7FFFFFFF)).to(tl.float32, bitcast=True)


@triton.jit
def bounds(a, ERROR, LENGTH, FACTS, n, m, rows, limit):
    """How far scores a [n, m] may be from those of the head itself; NaN and inf: any distance."""
    error = tl.load(ERROR + n, mask=n < limit, other=0.0)
    length = tl.load(LENGTH + n, mask=n < limit, other=0.0)
    x = tl.load(FACTS + rows + m, mask=m < rows, other=0.0)
    d = tl.load(FACTS + 2 * rows + m, mask=m < rows, other=0.0)
    off = error[:, None] * x[None, :] + length[:, None] * d[None, :] + _LEAST
    return tl.where(tl.abs(a) < float("inf"), off, float("inf"))


@triton.jit(do_not_specialize=["rows"])
def _split(X, TERMS, FACTS, MARKS, rows, K, BLOCK: tl.constexpr):
    """A row into terms [2, rows, K]; its unit, |x| and |d|, not less, into FACTS [3, rows]."""
    follow()
    m = tl.program_id(0)
    k = tl.arange(0, BLOCK)
    x = tl.load(X + m * K + k, mask=k < K, other=0.0).to(tl.float32)
    exponent = (tl.max(tl.abs(x), 0).to(tl.int32, bitcast=True) >> 23) - 127
    exponent = tl.maximum(exponent, _EXPONENT_MIN) - _DIGITS
    unit = ((exponent + 127) << 23).to(tl.float32, bitcast=True)
    value = x * ((127 - exponent) << 23).to(tl.float32, bitcast=True)
    whole = tl.floor(value + 0.5)
    high = tl.minimum(tl.maximum(tl.floor(whole / 128 + 0.5), -127.0), 127.0)
    low = tl.minimum(tl.maximum(whole - 128 * high, -127.0), 127.0)
    rest = value - (128 * high + low)
    tl.store(TERMS + m * K + k, high.to(tl.int8), mask=k < K)
    tl.store(TERMS + rows * K + m * K + k, low.to(tl.int8), mask=k < K)
    # More than sums and roots are rounded by; no smaller than float32 holds.
    tl.store(FACTS + m, unit)
    tl.store(FACTS + rows + m, unit * (tl.sqrt(tl.sum(value * value, 0)) * 1.001) + 2.0**-120)
    tl.store(FACTS + 2 * rows + m, unit * (tl.sqrt(tl.sum(rest * rest, 0)) * 1.001) + 2.0**-120)
    tl.store(MARKS, tl.zeros([], tl.int64))
    none = tl.full([], NONE, tl.int64)
    tl.store(MARKS + LOWER + m, none)
    tl.store(MARKS + BEST + m, none)


@triton.jit(do_not_specialize=["rows", "limit"])
def _scores(
    W, SCALE, ERROR, LENGTH, TERMS, FACTS, A, MARKS, rows, limit, K, COLUMNS: tl.constexpr,
    TILE: tl.constexpr, DEPTH: tl.constexpr, STAGES: tl.constexpr, EVEN: tl.constexpr,
    BOUNDED: tl.constexpr,
):  # fmt: skip
    """A[m, n] = SCALE[n] * q[n] (x[m] - d[m]) of the ids below the limit; with BOUNDED also what
    each row's best score is not below."""
    wait()
    n = tl.program_id(0) * TILE + tl.arange(0, TILE)
    m = tl.arange(0, COLUMNS)
    k = tl.arange(0, DEPTH)
    weights = W + tl.minimum(n, limit - 1)[:, None].to(tl.int64) * K + k[None, :]
    high = tl.zeros([TILE, COLUMNS], tl.int32)
    low = tl.zeros([TILE, COLUMNS], tl.int32)
    for at in tl.range(0, K, DEPTH, num_stages=STAGES):
        if EVEN:
            w = tl.load(weights + at, eviction_policy="evict_first")
        else:
            w = tl.load(weights + at, mask=(k + at)[None, :] < K, other=0)
        high = tl.dot(w, columns(TERMS, m, k + at, rows, K, EVEN), high, out_dtype=tl.int32)
        x = columns(TERMS + rows * K, m, k + at, rows, K, EVEN)
        low = tl.dot(w, x, low, out_dtype=tl.int32)
    let_follow()
    scale = tl.load(SCALE + n, mask=n < limit, other=0.0)
    unit = tl.load(FACTS + m, mask=m < rows, other=0.0)
    a = (high.to(tl.float32) * 128.0 + low.to(tl.float32)) * scale[:, None] * unit[None, :]
    live = (n[:, None] < limit) & (m[None, :] < rows)
    tl.store(A + m[None, :].to(tl.int64) * limit + n[:, None], a, mask=live)
    if BOUNDED:
        least = a - bounds(a, ERROR, LENGTH, FACTS, n, m, rows, limit)
        least = tl.where(live & (least == least), least, float("-inf"))
        marks = MARKS + LOWER + m
        tl.atomic_max(marks, ordered(tl.max(least, 0)).to(tl.int64), mask=m < rows, sem="relaxed")


@attrs.frozen(eq=False)
class Scores:
    """Of some rows, and what bounds them."""

    values: Tensor
    """[M, ids] float32."""
    facts: Tensor
    """[3, M] float32: unit, |x|, |d|."""
    marks: Tensor
    """[MARKS] int64."""


@attrs.frozen(eq=False)
class NarrowHead:
    """[V, h] in 8 bits."""

    copy: NarrowMatrix

    @classmethod
    def of(cls, head: Tensor) -> "NarrowHead":
        """A rounded copy of a head [V, h], which `kernels.copies_head` allows."""
        return cls(NarrowMatrix.of(head))

    def logits(self, hidden: Tensor) -> Tensor:
        """[M, V] float32 of hidden rows [M <= 64, h], about."""
        return self.scores(hidden, len(self.copy.weight), bounded=False).values

    def scores(self, hidden: Tensor, limit: int, *, bounded: bool = True) -> Scores:
        """Of the ids below the limit for hidden rows [M <= 64, h]."""
        (rows, k), c, new = checked(hidden), self.copy, hidden.new_empty
        terms, facts = new(2, rows, k, dtype=torch.int8), new(3, rows, dtype=torch.float32)
        marks, values = new(MARKS, dtype=torch.int64), new(rows, limit, dtype=torch.float32)
        _split[(rows,)](
            hidden, terms, facts, marks, rows, k, BLOCK=triton.next_power_of_2(k), num_warps=8,
            **FOLLOWING,
        )  # fmt: skip
        width = columns_of(rows)
        tile = NARROW[width]
        _scores[(triton.cdiv(limit, tile.rows),)](
            c.weight, c.scale, c.error, c.length, terms, facts, values, marks, rows, limit, k,
            COLUMNS=width, TILE=tile.rows, DEPTH=tile.depth, STAGES=tile.stages,
            EVEN=k % tile.depth == 0, BOUNDED=bounded, num_warps=tile.warps,
            num_stages=tile.stages, **FOLLOWING,
        )  # fmt: skip
        return Scores(values, facts, marks)


def columns_of(rows: int) -> int:
    """Columns that so many rows are multiplied as: whole numbers have the same sums in any."""
    return next(width for width in NARROW if rows <= width)


@attrs.frozen(eq=False)
class WholeHead:
    """A head that has no copy, as a packed one."""

    weight: Matrix
    """[V, h]."""

    def logits(self, hidden: Tensor) -> Tensor:
        """[M, V] float32 of hidden rows [M <= 64, h]."""
        return head_linear(hidden, self.weight)
