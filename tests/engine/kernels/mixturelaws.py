"""What holds of any mixture of experts by kernels, plain or packed."""

from collections.abc import Iterable

import torch
from torch import Tensor

from flashrt.engine.weights import MoeWeights
from tests.engine.kernels.mixtures import halved, living, part_of

from flashrt.engine.kernels import experts  # isort: skip


def check_own_bits(weights: MoeWeights, x: Tensor, counts: Iterable[int]) -> Tensor:
    """A row of x [64, h] has its bits in every number of rows and at every index; -> those."""
    half, one = halved(x), living(1)
    rows = [experts.rows_mixture(part_of(half, slice(i, i + 1)), weights, one) for i in range(64)]
    alone = torch.cat(rows, 1)
    for count in counts:
        parts = experts.rows_mixture(part_of(half, slice(count)), weights, living(count))
        assert torch.equal(parts, alone[:, :count]), count
        order = torch.randperm(64, generator=torch.Generator().manual_seed(count))[:count]
        parts = experts.rows_mixture(part_of(half, order), weights, living(count))
        assert torch.equal(parts, alone[:, order]), count
    return alone


def check_dead_rows(weights: MoeWeights, x: Tensor, live: int) -> None:
    """Those of x [M, h] behind the living leave zeros, and change no bit of the others."""
    x[live:] = torch.nan

    parts = experts.rows_mixture(halved(x), weights, living(live))

    assert not parts[:, live:].any()
    if live:
        alone = experts.rows_mixture(halved(x[:live]), weights, living(live))
        assert torch.equal(parts[:, :live], alone)


def check_captured_sizes(weights: MoeWeights, x: Tensor, sizes: Iterable[int]) -> None:
    """A block x [T, h] has its bits in each size, whatever the dead rows hold: they leave zeros."""
    count, hidden = x.shape
    exact = experts.block_mixture(x, weights, living(count))
    for rows in sizes:
        padded = torch.cat((x, x.new_full((rows - count, hidden), torch.nan)))
        parts = experts.block_mixture(padded, weights, living(count))
        assert torch.equal(parts[:, :count], exact), rows
        assert not parts[:, count:].any()
