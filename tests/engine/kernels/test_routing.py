"""Which experts serve a row, by kernels."""

import pytest
import torch
from torch import Tensor

from flashrt.engine import ffn as reference
from tests.engine.kernels.compare import BITS, CUDA, distance, noise
from tests.engine.kernels.mixtures import halved, living, part_of, whole

from flashrt.engine.kernels import routing  # isort: skip

pytestmark = pytest.mark.gpu
SHAPES = pytest.mark.parametrize(("experts", "hidden"), [(7, 64), (60, 200), (256, 2048)])


def scores(rows: int, experts: int) -> Tensor:
    """Random ones, a gate behind them."""
    return noise(rows, experts + 1, seed=6) * 2


def chosen_by(given: Tensor, per_row: int, live: int | None = None) -> tuple[Tensor, Tensor]:
    """Ids and shares of these scores, without the shared expert."""
    parts = torch.full((per_row + 1, len(given), 40), 7.0, device=CUDA)
    at = living(len(given) if live is None else live)
    routed = routing.choose(given, at, per_row, torch.bfloat16, parts)
    return routed.chosen, routed.shares


@SHAPES
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32], ids=str)
def test_scores_of_few_rows_equal_the_product(experts: int, hidden: int, dtype: torch.dtype):
    """Of rows and of rows that are still to be divided, in float32."""
    x, router = noise(19, hidden, dtype=dtype), noise(experts + 1, hidden, seed=1)
    half = halved(x * 5)

    plain, divided = routing.score_rows(x, router), routing.score_rows(half, router)

    assert distance(plain, x.double() @ router.double().T) < BITS[torch.float32]
    assert distance(divided, whole(half).double() @ router.double().T) < BITS[torch.float32]


@SHAPES
@pytest.mark.parametrize("rows", [1, 63, 300])
def test_scores_of_a_block_equal_the_product(experts: int, hidden: int, rows: int):
    """Though the weights have more digits than the matrix unit takes."""
    x, router = noise(rows, hidden, dtype=torch.bfloat16), noise(experts + 1, hidden, seed=1)

    got = routing.score_block(x, router)

    # The unit cuts off what it adds; with weights of eight bits this would be 2e-3.
    assert distance(got, x.double() @ router.double().T) < 2e-5


def test_a_rows_scores_are_its_own():
    """In float32 the last bit decides between experts: alone, among others and in any order."""
    half, router = halved(noise(64, 2048, dtype=torch.bfloat16)), noise(257, 2048, seed=1)
    alone = torch.cat([routing.score_rows(part_of(half, slice(i, i + 1)), router)
                       for i in range(64)])  # fmt: skip
    for count in (2, 3, 4, 5, 16, 33, 64):
        order = torch.randperm(64, generator=torch.Generator().manual_seed(count))[:count]
        assert torch.equal(routing.score_rows(part_of(half, order), router), alone[order])


@pytest.mark.parametrize(("experts", "per_row"), [(3, 3), (5, 1), (7, 3), (256, 8), (512, 10)])
def test_the_likeliest_experts_are_chosen(experts: int, per_row: int):
    """Those of the reference with its shares, from the lowest up; then the shared one."""
    given = scores(50, experts)
    wanted, parts = reference.route(given[:, :-1], per_row)
    order = wanted.sort(-1)

    chosen, shares = chosen_by(given, per_row)

    assert torch.equal(chosen[:, :-1].long(), order.values)
    assert torch.all(chosen[:, -1] == experts)
    assert distance(shares[:, :-1], parts.gather(1, order.indices)) < BITS[torch.bfloat16]
    assert torch.equal(shares[:, :-1], shares[:, :-1].bfloat16().float())
    assert distance(shares[:, -1], given[:, -1].sigmoid()) < BITS[torch.float32]


def test_of_equals_the_lowest_are_chosen():
    """Whole numbers, of which many are the same."""
    given = noise(500, 13, seed=7).round()
    wanted = reference.route(given[:, :-1], 4)[0].sort(-1).values

    assert torch.equal(chosen_by(given, 4)[0][:, :-1].long(), wanted)


def test_whatever_a_row_holds_its_ids_are_those_of_experts():
    """Not a number, of either sign, and infinities: nothing outside of the weights is read."""
    given = scores(5, 9)
    given[0], given[1] = torch.nan, -torch.nan
    given[2, 3] = torch.nan
    given[3, 5], given[4, :-1] = torch.inf, -torch.inf

    chosen, shares = chosen_by(given, 3)

    for ids in chosen[:, :-1].tolist():
        assert ids == sorted(set(ids))
        assert all(0 <= id_ < 9 for id_ in ids)
    assert shares[0].isnan().all()


def test_rows_that_do_not_live_choose_nothing():
    """Their parts are zeros, and those of the others are left to whoever computes them."""
    parts = torch.full((4, 6, 3000), 7.0, device=CUDA)

    routed = routing.choose(scores(6, 9), living(4), 3, torch.bfloat16, parts)

    assert torch.all(routed.chosen[4:] == -1)
    assert torch.all(routed.chosen[:4] >= 0)
    assert not parts[:, 4:].any()
    assert torch.all(parts[:, :4] == 7)


@pytest.mark.parametrize(("rows", "live"), [(1, 1), (40, 40), (40, 0), (300, 277), (2048, 2048)])
def test_pairs_are_sorted_by_expert(rows: int, live: int):
    """In the order of a stable sort; rows that do not live are left out."""
    chosen, _ = chosen_by(scores(rows, 20), 5, live)
    flat = chosen[:live].flatten()

    order = routing.sort(chosen, 20)

    assert torch.equal(order.pairs[: live * 6].long(), flat.argsort(stable=True))
    counts = flat.bincount(minlength=21).cumsum(0)
    assert order.first.tolist() == [0, *counts.tolist()]
