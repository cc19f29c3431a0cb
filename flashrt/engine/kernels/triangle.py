"""The inverse of many unit lower triangles of 64 rows, in place."""

import triton
import triton.language as tl
from torch import Tensor

from flashrt.engine.kernels.chain import FOLLOWING, follow

SIDE = 64

_SIDE = tl.constexpr(SIDE)
_SUB = tl.constexpr(16)


@triton.jit
def _block(A, row: tl.constexpr, column: tl.constexpr):
    """One [16, 16] block of a stored [64, 64] matrix."""
    i = tl.arange(0, _SUB)
    return tl.load(A + (i + row * _SUB)[:, None] * _SIDE + (i + column * _SUB)[None, :])


@triton.jit
def _put_block(T, row: tl.constexpr, column: tl.constexpr, x):
    i = tl.arange(0, _SUB)
    tl.store(T + (i + row * _SUB)[:, None] * _SIDE + (i + column * _SUB)[None, :], x)


@triton.jit
def _next_row(T, A, mine):
    """T with one more row of (1 + A)^-1, from the rows above it."""
    a = tl.sum(tl.where(mine, A, 0.0), 0)
    return tl.where(mine, T - tl.sum(a[:, None] * T, 0)[None, :], T)


@triton.jit
def _mul(a, b):
    return tl.dot(a, b, input_precision="ieee")


@triton.jit
def _invert(T):
    """Replace one strictly lower [64, 64] A by (1 + A)^-1, in blocks of 16.

    Blocks above the diagonal stay zeros.
    """
    follow()
    A = T + tl.program_id(0).to(tl.int64) * _SIDE * _SIDE
    A0, A1, A2, A3 = _block(A, 0, 0), _block(A, 1, 1), _block(A, 2, 2), _block(A, 3, 3)
    i = tl.arange(0, _SUB)
    one = tl.where(i[:, None] == i[None, :], 1.0, 0.0)
    T0, T1, T2, T3 = one, one, one, one
    for r in range(1, _SUB):
        mine = (i == r)[:, None]
        T0, T1 = _next_row(T0, A0, mine), _next_row(T1, A1, mine)
        T2, T3 = _next_row(T2, A2, mine), _next_row(T3, A3, mine)
    A10, A20, A21 = _block(A, 1, 0), _block(A, 2, 0), _block(A, 2, 1)
    A30, A31, A32 = _block(A, 3, 0), _block(A, 3, 1), _block(A, 3, 2)
    T10 = -_mul(T1, _mul(A10, T0))
    T21 = -_mul(T2, _mul(A21, T1))
    T32 = -_mul(T3, _mul(A32, T2))
    T20 = -_mul(T2, _mul(A20, T0) + _mul(A21, T10))
    T31 = -_mul(T3, _mul(A31, T1) + _mul(A32, T21))
    T30 = -_mul(T3, _mul(A30, T0) + _mul(A31, T10) + _mul(A32, T20))
    _put_block(A, 0, 0, T0)
    _put_block(A, 1, 1, T1)
    _put_block(A, 2, 2, T2)
    _put_block(A, 3, 3, T3)
    _put_block(A, 1, 0, T10)
    _put_block(A, 2, 1, T21)
    _put_block(A, 3, 2, T32)
    _put_block(A, 2, 0, T20)
    _put_block(A, 3, 1, T31)
    _put_block(A, 3, 0, T30)


def invert(A: Tensor) -> None:
    """Replace each strictly lower A [.., 64, 64] float32 by (1 + A)^-1.

    Row after row inside blocks of 16, and block by block: no product of powers of A, whose numbers
    would grow where rows repeat.
    """
    _invert[(A.numel() // SIDE**2,)](A, num_warps=4, **FOLLOWING)
