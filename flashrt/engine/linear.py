"""The seam for products with weight matrices: one family for few rows, one for blocks.

The family for few rows promises that a row's bits depend neither on the number of rows nor on the
row's index among them: every call has exactly GROUP rows, dead ones zero. That equal shapes give
equal bits at every index is checked at start (`selfcheck.py`), not assumed.

A packed matrix is multiplied slice by slice of its rows, each made dense in the dtype of x before
it is used; where the slices begin depends on the matrix alone, so both promises hold for it too.
"""

from collections.abc import Iterable

import torch
from torch import Tensor
from torch.nn import functional

from flashrt.engine.matrix import Matrix, Packed, dense_slices

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


def rows_linear(x: Tensor, weight: Matrix) -> Tensor:
    """x [M <= 64, K] @ weight [N, K]^T -> [M, N], row-invariant."""
    if isinstance(weight, Packed):
        return _by_slices(x, dense_slices(weight, x.dtype))
    if len(x) == GROUP:
        return functional.linear(x, weight)
    groups = [
        functional.linear(pad_rows(part, GROUP), weight)[: len(part)] for part in x.split(GROUP)
    ]
    return torch.cat(groups)


def block_linear(x: Tensor, weight: Matrix) -> Tensor:
    """x [M, K] @ weight [N, K]^T -> [M, N], all rows together; its bits may depend on M."""
    if isinstance(weight, Packed):
        slices = dense_slices(weight, x.dtype)
        return torch.cat([functional.linear(x, rows) for rows in slices], dim=1)
    return functional.linear(x, weight)


def head_linear(x: Tensor, weight: Matrix) -> Tensor:
    """Row-invariant logits: x [M <= 64, h] @ weight [V, h]^T -> [M, V] float32.

    The sums are float32 and stay so: near-ties must not be rounded together.
    """
    if weight.dtype == torch.float32:
        return rows_linear(x, weight)
    wide = x.float()
    if isinstance(weight, Packed):
        return _by_slices(wide, dense_slices(weight, wide.dtype))
    return torch.cat([rows_linear(wide, part.float()) for part in weight.split(HEAD_BLOCK)], dim=1)


def _by_slices(x: Tensor, slices: Iterable[Tensor]) -> Tensor:
    """Row-invariant, with each slice made once for all groups."""
    groups = [pad_rows(part, GROUP) for part in x.split(GROUP)]
    columns = [torch.cat([functional.linear(group, rows) for group in groups]) for rows in slices]
    return torch.cat(columns, dim=1)[: len(x)]
