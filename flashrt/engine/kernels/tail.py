"""The newest rows of a block, kept by position modulo the length of a ring."""

import triton
import triton.language as tl
from torch import Tensor

from flashrt.engine.buffers import CHUNK
from flashrt.engine.kernels.chain import FOLLOWING, follow

_CHUNK = tl.constexpr(CHUNK)


@triton.jit
def _store_tail(
    ROWS, row_stride, RING, AT, LEAST, WIDTH: tl.constexpr, RING_ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
):  # fmt: skip
    """The newest rows into a ring: those from the chunk before the last row's on, or RING_ROWS."""
    follow()
    pos, count = tl.load(AT), tl.load(AT + 2)
    end = pos + count
    p = end - RING_ROWS + tl.program_id(0)
    n = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    least = tl.where(LEAST > 0, ((end - 1) // _CHUNK - 1) * _CHUNK, 0)
    if (p >= pos) & (p >= least):
        row = (p - pos).to(tl.int64)
        x = tl.load(ROWS + row * row_stride + n, mask=n < WIDTH)
        tl.store(RING + (p % RING_ROWS) * WIDTH + n, x, mask=n < WIDTH)


def store_tail(ring: Tensor, at: Tensor, rows: Tensor, *, last_chunks: bool = False) -> None:
    """Keep the newest of the at[2] living `rows` [T, N] in ring [RING, N], by position.

    `last_chunks`: only those of the last row's chunk and of the one before it. Rows may be apart.
    """
    n = ring.shape[1]
    _store_tail[(len(ring), triton.cdiv(n, 1024))](
        rows, rows.stride(0), ring, at, int(last_chunks), WIDTH=n, RING_ROWS=len(ring), BLOCK=1024,
        **FOLLOWING,
    )  # fmt: skip
