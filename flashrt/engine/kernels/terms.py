"""Rows as sums of two numbers of 8 bits, for the matrix unit that takes such.

A block of BLOCK columns of a bfloat16 row is a power of two times HIGH + LOW, each e4m3. HIGH is
the number rounded to 4 digits, LOW what that leaves, of 4 digits too: so all 8 are there, down to
2^-17 of the block's largest number. Weights of 8 bits or less then need not be made wider to meet
a row.
"""

import attrs
import torch
import triton
import triton.language as tl
from torch import Tensor

from flashrt.engine.forms import BLOCK
from flashrt.engine.kernels.chain import FOLLOWING, follow

_BLOCK = tl.constexpr(BLOCK)
_LEAST = tl.constexpr(-100)
"""Of exponents of two; what is smaller in all of a block is lost."""

PADDED = 64
"""Rows that a product takes together are never more."""

TOGETHER = 8
"""Blocks of a row that one program splits."""


@triton.jit
def _to_4_digits(value):
    """What e4m3 makes of numbers below 256, still in float32: Triton 3.6 makes wrong code of the
    way back from e4m3."""
    bits = value.to(tl.int32, bitcast=True)
    rounded = ((bits + 0x7FFFF + ((bits >> 20) & 1)) & -0x100000).to(tl.float32, bitcast=True)
    # Below 2^-6 its steps are 2^-9: as those of float32 are around 1.5 * 2^14.
    small = (value + 24576.0) - 24576.0
    return tl.where(tl.abs(value) < 0.015625, small, rounded)


@triton.jit
def store_terms(TERMS, SCALES, x, m, block, rows, BLOCKS, STRIDE):
    """Of blocks x [COUNT, BLOCK] of row m, bfloat16 numbers in float32; block [COUNT]: which they
    are, from BLOCKS on none. STRIDE: of a block in SCALES."""
    top = tl.max(tl.abs(x), 1)
    # The largest number lies in [128, 256), where e4m3 ends at 448.
    exponent = tl.maximum((top.to(tl.int32, bitcast=True) >> 23) - 127 - 7, _LEAST)
    scale = ((exponent + 127) << 23).to(tl.float32, bitcast=True)
    value = x * ((127 - exponent) << 23).to(tl.float32, bitcast=True)[:, None]
    high = _to_4_digits(value)
    low = (value - high).to(tl.float8e4nv)
    live = block < BLOCKS
    at = (m * BLOCKS + block)[:, None] * _BLOCK + tl.arange(0, _BLOCK)[None, :]
    tl.store(TERMS + at, high.to(tl.float8e4nv), mask=live[:, None])
    tl.store(TERMS + rows * BLOCKS * _BLOCK + at, low, mask=live[:, None])
    tl.store(SCALES + block * STRIDE + m, scale, mask=live)
    tl.store(SCALES + (BLOCKS + block) * STRIDE + m, tl.sum(x, 1), mask=live)


@triton.jit(do_not_specialize=["rows"])
def _split(X, TERMS, SCALES, rows, K, BLOCKS, STRIDE, COUNT: tl.constexpr):
    """Some blocks of one row."""
    follow()
    m = tl.program_id(0)
    block = tl.program_id(1) * COUNT + tl.arange(0, COUNT)
    k = block[:, None] * _BLOCK + tl.arange(0, _BLOCK)[None, :]
    x = tl.load(X + m.to(tl.int64) * K + k, mask=k < K, other=0.0).to(tl.float32)
    store_terms(TERMS, SCALES, x, m, block, rows, BLOCKS, STRIDE)


@attrs.frozen(eq=False)
class Terms:
    """Rows [M, K] of K rounded up to whole blocks, zeros behind."""

    numbers: Tensor
    """[2, M, K] float8_e4m3fn: high, then low."""
    scales: Tensor
    """[2, K / BLOCK, M rounded up to PADDED] float32: what a block's numbers are multiplied with,
    and its row's sum. Behind M anything: no row that counts meets it."""

    @classmethod
    def empty(cls, rows: int, columns: int, device: torch.device) -> "Terms":
        """Uninitialised."""
        blocks = triton.cdiv(columns, BLOCK)
        numbers = torch.empty(2, rows, blocks * BLOCK, dtype=torch.float8_e4m3fn, device=device)
        padded = triton.cdiv(rows, PADDED) * PADDED
        return cls(numbers, torch.empty(2, blocks, padded, dtype=torch.float32, device=device))

    @classmethod
    def of(cls, rows: Tensor) -> "Terms":
        """Of rows [M, K] bfloat16."""
        count, k = rows.shape
        terms = cls.empty(count, k, rows.device)
        blocks = terms.scales.shape[1]
        _split[(count, triton.cdiv(blocks, TOGETHER))](
            rows, terms.numbers, terms.scales, count, k, blocks, terms.scales.stride(1),
            COUNT=TOGETHER, num_warps=4, **FOLLOWING,
        )  # fmt: skip
        return terms


@attrs.frozen(eq=False)
class WithTerms:
    """Rows whose terms were made with them."""

    rows: Tensor
    """[M, K] bfloat16."""
    terms: Terms
