"""A Triton kernel that only reads: what it reaches is what memory gives at best."""

import torch
import triton
import triton.language as tl
from torch import Tensor

TILE = 8192


@triton.jit
def _read(X, Y, SIZE: tl.constexpr):
    i = tl.program_id(0).to(tl.int64)
    tl.store(Y + i, tl.sum(tl.load(X + i * SIZE + tl.arange(0, SIZE)).to(tl.float32), 0))


def read_all(x: Tensor) -> Tensor:
    """The sum of each tile of x, whose length is a multiple of TILE."""
    y = torch.empty(len(x) // TILE, device=x.device)
    _read[(len(y),)](x, y, SIZE=TILE, num_warps=8)
    return y
