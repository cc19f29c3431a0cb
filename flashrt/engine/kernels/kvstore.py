"""K and V rounded as they are stored, and unpacked in registers as they are read.

Reference: `flashrt.engine.kvcache.stored`; reading is exact. Triton's own way from e4m3 to bfloat16
is two conversions of a number, of which a multiprocessor begins 16 a cycle: slower than memory. So
four neighbours, a register of them, are put where bfloat16 has exponent and fraction, and one
multiplication for two of them sets the exponent, as `unpack` does for weights.
"""

import triton
import triton.language as tl

_MOST = tl.constexpr(448.0)
"""The largest number of e4m3."""

_UNPACKED = tl.constexpr("""{
.reg .b32 low, high, unit, no;
mov.b32 unit, 0x7B807B80;
mov.b32 no, 0x80008000;
prmt.b32 low, $2, 0, 0x1404;
prmt.b32 high, $2, 0, 0x3424;
shr.b32 $0, low, 4;
shr.b32 $1, high, 4;
lop3.b32 $0, $0, 0x07F007F0, 0, 0xC0;
lop3.b32 $1, $1, 0x07F007F0, 0, 0xC0;
lop3.b32 $0, low, 0x80008000, $0, 0xEA;
lop3.b32 $1, high, 0x80008000, $1, 0xEA;
fma.rn.bf16x2 $0, $0, unit, no;
fma.rn.bf16x2 $1, $1, unit, no;
}""")
"""Four of e4m3 to bfloat16: bytes to the upper halves of halves, sign kept, the rest four places
lower; times 2 ** 120, plus -0 so that a zero keeps its sign. NaN, which no finite number is stored
as, reads as 480."""


@triton.jit
def as_stored(x, dtype: tl.constexpr):
    """x in the dtype of K and V, to the nearest, of equals the even one. Beyond the numbers of e4m3
    stands its largest; what is not a number stays so."""
    if dtype == tl.float8e4nv:
        wide = x.to(tl.float32)
        x = tl.clamp(wide, -_MOST, _MOST, propagate_nan=tl.PropagateNan.ALL)
    return x.to(dtype)


@triton.jit
def as_rows(x, dtype: tl.constexpr):
    """Stored K or V in the dtype of the rows that meet them. Exact, or rounded where K and V have
    more digits than the rows."""
    if x.dtype == tl.float8e4nv and dtype == tl.bfloat16:
        y = tl.inline_asm_elementwise(
            _UNPACKED, "=r,=r,r", [x], dtype=tl.bfloat16, is_pure=True, pack=4
        )
    else:
        y = x.to(dtype)
    return y
