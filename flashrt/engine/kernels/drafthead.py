"""The output head that drafts are chosen by: a copy in 8 bits, which is read in half the time.

A draft only proposes, so what it is worth depends on this copy and nothing else does. Each row of
the matrix is e4m3 times one float32 scale. A head that is packed already is read as it is.
"""

import attrs
import torch
import triton
import triton.language as tl
from torch import Tensor

from flashrt.engine.kernels.chain import FOLLOWING, let_follow, wait
from flashrt.engine.kernels.linear import head_linear
from flashrt.engine.matrix import Matrix, Packed, dense

LARGEST = 448.0
"""Of what e4m3 can hold."""

SLICE = 8192
"""Rows that are rounded at a time."""

TILE, DEPTH, STAGES = 16, 512, 3


@triton.jit
def _draft_head(
    X, W, SCALE, Y, N, K, TILE: tl.constexpr, DEPTH: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """Y[n] = SCALE[n] * sum of W[n, k] X[k], for one row of X."""
    wait()
    n = tl.program_id(0) * TILE + tl.arange(0, TILE)
    k = tl.arange(0, DEPTH)
    weights = W + tl.minimum(n, N - 1)[:, None].to(tl.int64) * K + k[None, :]
    total = tl.zeros([TILE, DEPTH], tl.float32)
    for at in tl.range(0, K, DEPTH, num_stages=STAGES):
        inside = k + at < K
        w = tl.load(weights + at, mask=inside[None, :], other=0.0).to(tl.float32)
        total += w * tl.load(X + k + at, mask=inside, other=0.0).to(tl.float32)[None, :]
    let_follow()
    tl.store(Y + n, tl.sum(total, 1) * tl.load(SCALE + n, mask=n < N), mask=n < N)


@attrs.frozen(eq=False)
class DraftHead:
    """[V, h] in 8 bits."""

    weight: Tensor
    """[V, h] float8_e4m3fn."""
    scale: Tensor
    """[V] float32."""

    @classmethod
    def of(cls, head: Matrix) -> "DraftHead":
        """A rounded copy of a head [V, h]; takes V * (h + 4) bytes."""
        weight = torch.empty(head.shape, dtype=torch.float8_e4m3fn, device=head.device)
        scale = torch.empty(len(head), dtype=torch.float32, device=head.device)
        for lo in range(0, len(head), SLICE):
            part = dense(head, lo, lo + SLICE, torch.float32)
            scale[lo : lo + SLICE] = part.abs().amax(-1).clamp(min=1e-12) / LARGEST
            weight[lo : lo + SLICE] = (part / scale[lo : lo + SLICE, None]).to(weight.dtype)
        return cls(weight, scale)

    def logits(self, hidden: Tensor) -> Tensor:
        """[1, V] float32 of one hidden row [1, h]."""
        n, k = self.weight.shape
        y = torch.empty(1, n, dtype=torch.float32, device=hidden.device)
        _draft_head[(triton.cdiv(n, TILE),)](
            hidden, self.weight, self.scale, y, n, k,
            TILE=TILE, DEPTH=DEPTH, STAGES=STAGES, num_warps=4, **FOLLOWING,
        )  # fmt: skip
        return y


@attrs.frozen(eq=False)
class PackedHead:
    """A head that needs no copy."""

    weight: Packed
    """[V, h]."""

    def logits(self, hidden: Tensor) -> Tensor:
        """[1, V] float32 of one hidden row [1, h]."""
        return head_linear(hidden, self.weight)


def draft_head(head: Matrix) -> DraftHead | PackedHead:
    """What drafts are chosen by."""
    return PackedHead(head) if isinstance(head, Packed) else DraftHead.of(head)
