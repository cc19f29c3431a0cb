"""Products of experts with packed weights."""

import pytest
import torch
from torch import Tensor

from flashrt.engine.ffn import feed_forward
from flashrt.engine.matrix import Experts, Packed
from flashrt.engine.passes import BlockPass
from tests.engine.kernels.compare import BITS, distance, noise
from tests.engine.kernels.mixturelaws import (
    check_captured_sizes,
    check_dead_rows,
    check_own_bits,
)
from tests.engine.kernels.mixtures import SMALL, WIDE, Size, halved, living, wanted
from tests.engine.kernels.packedmixtures import FORMS, PLAIN, RAGGED, Mix, meaning
from tests.engine.kernels.packs import fp8_blocks

from flashrt.engine.kernels import experts, expertweights  # isort: skip
from flashrt.engine.kernels.graphs import Graph, capturing, in_one  # isort: skip

pytestmark = pytest.mark.gpu
CLOSE = BITS[torch.bfloat16]
ODD = Size(hidden=208, inner=48, shared=80, experts=7, per_row=3)
UNEVEN = Size(hidden=160, inner=288, shared=96, experts=5, per_row=2)
MIXES = [
    *(Mix.of(SMALL, form) for form in FORMS),
    *(Mix.of(size, form) for size in (ODD, UNEVEN) for form in RAGGED),
    *(Mix.of(WIDE, form) for form in ("fp8 blocks", "fp8 rows", "int4 g64", "nvfp4")),
    Mix.of(SMALL, "int4 g64", PLAIN),
    Mix.of(WIDE, "int4 g64", PLAIN),
    Mix.of(ODD, "fp8 rows", PLAIN),
    Mix.of(SMALL, "nvfp4", "fp8 blocks"),
    Mix.of(UNEVEN, "fp8 blocks", "int4 g16"),
    Mix.of(SMALL, "int4 g64", "int4 g64, float16 scales"),
    Mix.of(SMALL, PLAIN, "nvfp4"),
    Mix(SMALL, "fp8 rows", "int4 g64", "fp8 rows"),
    Mix(SMALL, "nvfp4", PLAIN, "nvfp4"),
]
EVERY = pytest.mark.parametrize("mix", MIXES, ids=lambda mix: mix.name)
SOME = pytest.mark.parametrize("mix", [*MIXES[:6:2], *MIXES[-5:]], ids=lambda mix: mix.name)
COUNTS = [1, 2, 3, 8, 15, 16, 17, 33, 64]


def rows_of(mix: Mix, count: int, seed: int = 0) -> Tensor:
    return noise(count, mix.size.hidden, seed=seed, dtype=torch.bfloat16)


@EVERY
@pytest.mark.parametrize("count", [1, 21])
def test_few_rows_equal_the_definition_with_the_same_numbers(mix: Mix, count: int):
    """Within what is rounded between the two products, of shares, and of short groups."""
    weights, half = mix.weights(), halved(rows_of(mix, count))

    parts = experts.rows_mixture(half, weights, living(count))

    assert parts.shape == (mix.size.per_row + 1, count, mix.size.hidden)
    assert distance(parts.sum(0), wanted(half, meaning(weights))) < 2 * CLOSE


@EVERY
@pytest.mark.parametrize("count", [3, 65, 300])
def test_a_block_equals_the_definition_and_the_reference(mix: Mix, count: int):
    """Within the same, and what is rounded of each part."""
    weights, x = mix.weights(), rows_of(mix, count)

    total = experts.block_mixture(x, weights, living(count)).float().sum(0)

    assert distance(total, wanted(x, meaning(weights))) < 2 * CLOSE
    assert distance(total, feed_forward(x, weights, BlockPass(0, count))) < 4 * CLOSE


@EVERY
def test_a_rows_bits_are_its_own(mix: Mix):
    """For every number of rows, at every index, whatever experts the others choose."""
    check_own_bits(mix.weights(), rows_of(mix, 64), COUNTS)


@SOME
@pytest.mark.parametrize(("count", "live"), [(4, 1), (16, 5), (8, 0)])
def test_dead_rows_of_few_leave_zeros(mix: Mix, count: int, live: int):
    """Whatever they hold; the others have the bits of a pass without them."""
    check_dead_rows(mix.weights(), rows_of(mix, count), live)


@EVERY
@pytest.mark.parametrize("count", [1, 100])
def test_a_block_does_not_depend_on_its_captured_size(mix: Mix, count: int):
    """Dead rows leave zeros, whatever they hold, and cost no bit of the others."""
    check_captured_sizes(mix.weights(), rows_of(mix, count), (count + 1, 128, 256))


@torch.inference_mode()
@SOME
@pytest.mark.parametrize("block", [False, True], ids=["rows", "block"])
def test_a_graph_serves_other_rows_and_choices(mix: Mix, block: bool):
    """Captured with one row that lives; nothing of what it saw then stays."""
    weights, at, x = mix.weights(), living(1), rows_of(mix, 32)

    def run() -> Tensor:
        if block:
            return experts.block_mixture(x, weights, at)
        return experts.rows_mixture(halved(x), weights, at)

    with capturing() as pool:
        graph = Graph.capture(in_one(run), pool)

    for seed, live in ((1, 32), (2, 7)):
        x.copy_(rows_of(mix, 32, seed=seed))
        at.copy_(living(live))
        assert torch.equal(graph.replay().clone(), run())


def test_rows_of_another_dtype_are_refused():
    """Packed weights meet bfloat16."""
    weights, x = Mix.of(SMALL, "nvfp4").weights(), noise(2, SMALL.hidden)

    with pytest.raises(TypeError, match="float32"):
        experts.rows_mixture(halved(x), weights, living(2))


def test_what_no_kernel_reads_is_refused():
    """Several forms, and blocks of scales that go on from one matrix into the next."""
    form = fp8_blocks(4 * 192, 128)
    parts = Packed((form, form), torch.bfloat16)

    with pytest.raises(ValueError, match="several forms"):
        expertweights.Stack.of(Experts(parts, 192), 192)
    with pytest.raises(ValueError, match="192 rows"):
        expertweights.Stack.of(Experts(Packed((form,), torch.bfloat16), 192), 192)


def test_experts_that_are_alike_are_read_by_one_way():
    """The shared expert costs no second one where it has the form of the others."""
    alike, apart = Mix.of(SMALL, "nvfp4"), Mix.of(SMALL, "nvfp4", "fp8 rows")
    options = [
        expertweights.reading(
            expertweights.Stack.of(weights.down, SMALL.hidden),
            expertweights.Stack.of(weights.shared.down, SMALL.hidden),
            2,
            block=False,
            gated=False,
        )
        for weights in (alike.weights(), apart.weights())
    ]

    assert options[0]["ALIKE"]
    assert options[0]["READ"] == options[0]["SHARED_READ"]
    assert not options[1]["ALIKE"]
