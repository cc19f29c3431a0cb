"""The products of a mixture of experts by kernels."""

import attrs
import pytest
import torch
from torch import Tensor

from flashrt.engine.activations import Activations
from flashrt.engine.ffn import feed_forward
from flashrt.engine.passes import BlockPass
from flashrt.engine.shapes import MIXTURE
from flashrt.engine.weights import MoeWeights
from tests.engine.kernels.compare import BITS, CUDA, distance, noise
from tests.engine.kernels.mixturelaws import (
    check_captured_sizes,
    check_dead_rows,
    check_own_bits,
)
from tests.engine.kernels.mixtures import (
    ODD,
    SMALL,
    WIDE,
    Size,
    halved,
    living,
    wanted,
)

from flashrt.engine.kernels import experts  # isort: skip
from flashrt.engine.kernels.graphs import Graph, capturing, in_one  # isort: skip

pytestmark = pytest.mark.gpu
SIZES = pytest.mark.parametrize("size", [ODD, SMALL, WIDE], ids=["odd", "small", "wide"])
DTYPES = pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32], ids=str)
COUNTS = [1, 2, 3, 4, 5, 8, 15, 16, 17, 33, 64]
TWICE = 2
"""A part is rounded where it is stored, beside what is between its two products."""


def rows_of(size: Size, count: int, dtype: torch.dtype = torch.bfloat16, seed: int = 0) -> Tensor:
    return noise(count, size.hidden, seed=seed, dtype=dtype)


def alike(weights: MoeWeights) -> MoeWeights:
    """All experts are equally likely: every row chooses the first ones, and the others are not
    numbers."""
    gate_up, down = weights.gate_up.clone(), weights.down.clone()
    gate_up[weights.experts_per_row :] = torch.nan
    down[weights.experts_per_row :] = torch.nan
    router = torch.zeros_like(weights.router)
    return attrs.evolve(weights, router=router, gate_up=gate_up, down=down)


@SIZES
@DTYPES
@pytest.mark.parametrize("count", [1, 21, 64])
def test_few_rows_equal_the_definition(size: Size, dtype: torch.dtype, count: int):
    """The parts add up to it, within what is rounded between the two products and of shares."""
    weights = size.weights(dtype)
    half = halved(rows_of(size, count, dtype))

    parts = experts.rows_mixture(half, weights, living(count))

    assert parts.shape == (size.per_row + 1, count, size.hidden)
    assert distance(parts.sum(0), wanted(half, weights)) < TWICE * BITS[dtype]


@SIZES
@pytest.mark.parametrize("count", [1, 2, 33, 64, 65, 200, 600])
def test_a_block_equals_the_definition_and_the_reference(size: Size, count: int):
    """Within the same, and what is rounded of each part."""
    weights, x = size.weights(), rows_of(size, count)

    parts = experts.block_mixture(x, weights, living(count))

    assert distance(parts.float().sum(0), wanted(x, weights)) < TWICE * BITS[x.dtype]
    theirs = feed_forward(x, weights, BlockPass(0, count))
    assert distance(parts.float().sum(0), theirs) < 2 * TWICE * BITS[x.dtype]


@SIZES
@DTYPES
def test_a_rows_bits_are_its_own(size: Size, dtype: torch.dtype):
    """For every number of rows, at every index, whatever experts the others choose."""
    check_own_bits(size.weights(dtype), rows_of(size, 64, dtype), COUNTS)


@SIZES
def test_a_row_of_few_that_choose_alike_has_its_bits(size: Size):
    """Several groups of one expert, and experts that nobody chooses, which are not read."""
    alone = check_own_bits(alike(size.weights()), rows_of(size, 64), (2, 16, 17, 40, 64))

    assert alone.isfinite().all()


@SIZES
@pytest.mark.parametrize("count", [64, 65, 600])
def test_a_block_that_chooses_alike_equals_the_definition(size: Size, count: int):
    """All rows in the groups of few experts; those that nobody chooses are not read."""
    weights, x = alike(size.weights()), rows_of(size, count)

    parts = experts.block_mixture(x, weights, living(count)).float()

    few = attrs.evolve(weights, router=torch.zeros_like(weights.router[: size.per_row + 1]),
                       gate_up=weights.gate_up[: size.per_row],
                       down=weights.down[: size.per_row])  # fmt: skip
    assert distance(parts.sum(0), wanted(x, few)) < TWICE * BITS[x.dtype]


@pytest.mark.parametrize(("count", "live"), [(4, 1), (16, 5), (64, 33), (8, 0)])
def test_dead_rows_of_few_leave_zeros(count: int, live: int):
    """Whatever they hold; the others have the bits of a pass without them."""
    check_dead_rows(SMALL.weights(), rows_of(SMALL, count), live)


@SIZES
@pytest.mark.parametrize("count", [1, 31, 64, 100, 500])
def test_a_block_does_not_depend_on_its_captured_size(size: Size, count: int):
    """Dead rows leave zeros, whatever they hold, and cost no bit of the others."""
    sizes = [rows for rows in (count + 1, 128, 256, 512) if rows > count]
    check_captured_sizes(size.weights(), rows_of(size, count), sizes)


def test_a_block_repeats_its_bits():
    """The order of pairs is no race."""
    weights, x = WIDE.weights(), rows_of(WIDE, 600)
    first = experts.block_mixture(x, weights, living(600))

    assert all(
        torch.equal(experts.block_mixture(x, weights, living(600)), first) for _ in range(10)
    )


@torch.inference_mode()
@pytest.mark.parametrize("block", [False, True], ids=["rows", "block"])
def test_a_graph_serves_other_rows_and_choices(block: bool):
    """Captured with one row that lives; nothing of what it saw then stays."""
    weights, at = SMALL.weights(), living(1)
    x = rows_of(SMALL, 32)

    def run() -> Tensor:
        if block:
            return experts.block_mixture(x, weights, at)
        return experts.rows_mixture(halved(x), weights, at)

    with capturing() as pool:
        graph = Graph.capture(in_one(run), pool)

    for seed, live in ((1, 32), (2, 7), (3, 20)):
        x.copy_(rows_of(SMALL, 32, seed=seed))
        at.copy_(living(live))
        got = graph.replay().clone()
        assert torch.equal(got, run())


@torch.inference_mode()
@pytest.mark.parametrize("count", [512, 2048])
def test_a_block_holds_no_more_than_is_said(count: int):
    """The largest shape that is served, beside its weights, against `engine.activations`."""
    moe = MIXTURE.moe
    assert moe is not None
    size = Size(MIXTURE.hidden_size, moe.intermediate_size, moe.shared_intermediate_size,
                moe.experts, moe.experts_per_row)  # fmt: skip
    weights, x, at = size.weights(), rows_of(size, count), living(count)
    experts.block_mixture(x, weights, at)
    torch.cuda.reset_peak_memory_stats(CUDA)
    before = torch.cuda.memory_allocated(CUDA)

    experts.block_mixture(x, weights, at)

    held = torch.cuda.max_memory_allocated(CUDA) - before
    around = 3 * x.nbytes  # the rows before their norm, behind it, and the sum
    assert held + around <= Activations(MIXTURE, 2).block_bytes(count, count)


def test_rows_that_do_not_fit_are_refused():
    """More than the family has are an error, never cut off."""
    with pytest.raises(ValueError, match="64"):
        experts.rows_mixture(halved(rows_of(SMALL, 65)), SMALL.weights(), living(65))
