"""The seam for products with weight matrices: one family for few rows, one for blocks.

The family for few rows promises that a row's bits depend neither on the number of rows nor on the
row's index among them: every call has exactly GROUP rows, dead ones zero. That equal shapes give
equal bits at every index is checked at start (`selfcheck.py`), not assumed.
"""

import torch
from torch import Tensor
from torch.nn import functional

GROUP = 16
"""Rows of every product in the family for few rows."""

ROWS_MAX = 64
"""More rows than this are a block."""

HEAD_BLOCK = 8192
"""Rows of the output head widened to float32 at a time."""


def pad_rows(x: Tensor, count: int) -> Tensor:
    """x [T <= count, ...] with zero rows up to `count`."""
    if len(x) == count:
        return x
    padded = x.new_zeros(count, *x.shape[1:])
    padded[: len(x)] = x
    return padded


def rows_linear(x: Tensor, weight: Tensor) -> Tensor:
    """x [M <= 64, K] @ weight [N, K]^T -> [M, N], row-invariant."""
    if len(x) == GROUP:
        return functional.linear(x, weight)
    groups = [
        functional.linear(pad_rows(part, GROUP), weight)[: len(part)] for part in x.split(GROUP)
    ]
    return torch.cat(groups)


def block_linear(x: Tensor, weight: Tensor) -> Tensor:
    """x [M, K] @ weight [N, K]^T -> [M, N] in one product; its bits may depend on M."""
    return functional.linear(x, weight)


def head_linear(x: Tensor, weight: Tensor) -> Tensor:
    """Row-invariant logits: x [M <= 64, h] @ weight [V, h]^T -> [M, V] float32.

    The sums are float32 and stay so: near-ties must not be rounded together.
    """
    if weight.dtype == torch.float32:
        return rows_linear(x, weight)
    wide = x.float()
    return torch.cat([rows_linear(wide, part.float()) for part in weight.split(HEAD_BLOCK)], dim=1)
