"""Heads and rows that are hard to choose from."""

import torch
from torch import Tensor

from tests.engine.kernels.compare import noise


def head_of(
    ids: int, columns: int, *, seed: int = 1, dtype: torch.dtype = torch.bfloat16
) -> Tensor:
    """[ids, columns], as large as a model's."""
    return (noise(ids, columns, seed=seed) * 0.02).to(dtype)


def with_odd_rows(head: Tensor, x: Tensor) -> Tensor:
    """The same with rows of zeros, of huge and of tiny numbers, and with an outlier in some."""
    head = head.clone()
    head[::7] = 0
    head[1::7] *= 1e30
    head[2::7] *= 1e-30
    head[3::7, 5] = 40
    # Far above all others for row x, wherever it is: so these alone are not all that counts.
    head[3] = x * 1e31
    return head


def outliers(rows: Tensor) -> Tensor:
    """The same with one number in each row that is 10,000 times as large as the others."""
    rows = rows.clone()
    at = torch.arange(len(rows), device=rows.device)
    rows[at, (at * 37) % rows.shape[1]] = 1e4
    return rows
