"""Packed weights made bfloat16 in registers, two neighbouring columns at a time.

Words are int32. Of e4m3 a word is 4 columns in their order, of four bits 8 columns so placed that
two neighbours lie 16 bits apart (`forms.PLACES`). So a pair of columns is the two halves of a
register, as the matrix unit takes it, and one instruction works on both. Everything here is exact.

The few instructions that Triton has no word for are PTX, each in a function to itself.
"""

import triton
import triton.language as tl

PAIRS_OF_BYTES = 2
PAIRS_OF_NIBBLES = 4

FP8_UNIT = tl.constexpr(2.0**120)
"""e4m3 bits where bfloat16 has its exponent and fraction mean this much less."""

NVFP4_UNIT = tl.constexpr(2.0**-20)
"""What an unpacked NVFP4 weight is in units of what it means, so that neither it nor a scale
leaves the range of bfloat16."""

_HALF_UNIT = tl.constexpr(2.0**113)
"""NVFP4: 2 ** 126 for a number's bits and FP8_UNIT for its scale's, times NVFP4_UNIT, are this
squared."""

_BYTES_01 = tl.constexpr("prmt.b32 $0, $1, 0, 0x1404;")
_BYTES_23 = tl.constexpr("prmt.b32 $0, $1, 0, 0x3424;")
_OR_128 = tl.constexpr("lop3.b32 $0, $1, 0x000F000F, 0x43004300, 0xEA;")
_PLUS = tl.constexpr("{.reg .b32 one; mov.b32 one, 0x3F803F80; fma.rn.bf16x2 $0, $1, one, $2;}")
_TIMES = tl.constexpr("{.reg .b32 no; mov.b32 no, 0x80008000; fma.rn.bf16x2 $0, $1, $2, no;}")


@triton.jit
def _top_bytes(w, pair: tl.constexpr):
    """Two neighbouring bytes of each word, in the upper bytes of its halves; zeros below."""
    if pair == 0:
        v = tl.inline_asm_elementwise(_BYTES_01, "=r,r", [w], tl.int32, is_pure=True, pack=1)
    else:
        v = tl.inline_asm_elementwise(_BYTES_23, "=r,r", [w], tl.int32, is_pure=True, pack=1)
    return v


@triton.jit
def _or_128(w):
    """128 + the lowest four bits of each half, as bfloat16."""
    return tl.inline_asm_elementwise(_OR_128, "=r,r", [w], tl.int32, is_pure=True, pack=1)


@triton.jit
def plus(a, b):
    """a + b of bfloat16, two at a time."""
    return tl.inline_asm_elementwise(_PLUS, "=r,r,r", [a, b], tl.bfloat16, is_pure=True, pack=2)


@triton.jit
def times(a, b):
    """a * b of bfloat16, two at a time; also of numbers below the normal ones."""
    return tl.inline_asm_elementwise(_TIMES, "=r,r,r", [a, b], tl.bfloat16, is_pure=True, pack=2)


@triton.jit
def _halves(r, TILE: tl.constexpr, WORDS: tl.constexpr):
    """Words [TILE, WORDS] -> their halves as bfloat16 [TILE, 2 WORDS]."""
    low = (r & 0xFFFF).to(tl.int16).to(tl.bfloat16, bitcast=True)
    high = (r >> 16).to(tl.int16).to(tl.bfloat16, bitcast=True)
    return tl.reshape(tl.join(low, high), (TILE, 2 * WORDS))


@triton.jit
def fp8_pair(w, pair: tl.constexpr, TILE: tl.constexpr, WORDS: tl.constexpr):
    """Columns 2 pair and 2 pair + 1 of each word [TILE, WORDS] -> [TILE, 2 WORDS]."""
    v = _top_bytes(w, pair)
    r = (v & -0x7FFF8000) | ((v >> 4) & 0x07F007F0)
    a = _halves(r, TILE, WORDS)
    return times(a, tl.full([TILE, 2 * WORDS], FP8_UNIT, tl.bfloat16))


@triton.jit
def int4_pair(w, zero, pair: tl.constexpr, TILE: tl.constexpr, WORDS: tl.constexpr):
    """Numbers less their zero; zero: what `int4_zero` makes of it, [TILE, 2 WORDS]."""
    return plus(_halves(_or_128(w >> (4 * pair)), TILE, WORDS), zero)


@triton.jit
def int4_zero(zero):
    """-(128 + zero) as bfloat16, of uint8."""
    return (-128.0 - zero.to(tl.float32)).to(tl.bfloat16)


@triton.jit
def nvfp4_pair(w, scale, pair: tl.constexpr, TILE: tl.constexpr, WORDS: tl.constexpr):
    """Numbers times their scale, in NVFP4_UNIT; scale: of `nvfp4_scale`, [TILE, 2 WORDS]."""
    if pair < 2:
        size = w << (6 - 4 * pair)
    else:
        size = w >> (4 * pair - 6)
    r = ((w << (12 - 4 * pair)) & -0x7FFF8000) | (size & 0x01C001C0)
    return times(_halves(r, TILE, WORDS), scale)


@triton.jit
def nvfp4_scale(scale):
    """What the bits of numbers are multiplied with, of the bits of e4m3 (uint8)."""
    bits = scale.to(tl.int16)
    r = ((bits & 0x80) << 8) | ((bits & 0x7F) << 4)
    a = r.to(tl.int16).to(tl.bfloat16, bitcast=True)
    return a * _HALF_UNIT * _HALF_UNIT


@triton.jit
def spread(values, TILE: tl.constexpr, COUNT: tl.constexpr, WORDS: tl.constexpr):
    """[TILE, COUNT] of equal runs of words -> [TILE, 2 WORDS]."""
    EACH: tl.constexpr = 2 * WORDS // COUNT
    return tl.reshape(tl.broadcast_to(values[:, :, None], (TILE, COUNT, EACH)), (TILE, 2 * WORDS))
