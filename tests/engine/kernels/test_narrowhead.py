"""The head in 8 bits."""

import pytest
import torch
from torch import Tensor

from flashrt.engine.matrix import Packed
from tests.engine.kernels.compare import CUDA, distance, noise
from tests.engine.kernels.heads import head_of, outliers, with_odd_rows
from tests.engine.kernels.packs import FORMS

from flashrt.engine.kernels.linear import head_linear  # isort: skip
from flashrt.engine.kernels.narrowhead import NarrowHead, WholeHead, ordered  # isort: skip
from flashrt.engine.kernels.narrowhead import unordered  # isort: skip

import triton  # isort: skip
import triton.language as tl  # isort: skip

pytestmark = pytest.mark.gpu

SHAPES = pytest.mark.parametrize(
    "shape", [(61, 64), (300, 33), (8256, 128), (20000, 5120)], ids=str
)
COUNTS = pytest.mark.parametrize("rows", [1, 4, 16, 17, 64])
DTYPES = pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32], ids=str)


@SHAPES
@COUNTS
@DTYPES
def test_scores_are_those_of_the_rounded_matrix(shape: tuple[int, int], rows: int, dtype):
    """The kernel adds next to nothing to what rounding to 8 bits costs, and that is little."""
    weight, hidden = head_of(*shape, dtype=dtype), noise(rows, shape[1], dtype=dtype)
    head = NarrowHead.of(weight)

    got = head.logits(hidden)

    rounded = head.copy.weight.double() * head.copy.scale.double()[:, None]
    assert distance(got, hidden.double() @ rounded.T) < 3e-4
    assert distance(got, hidden.double() @ weight.double().T) < 0.02


@pytest.mark.parametrize("rows", [1, 5, 33, 64])
def test_a_rows_scores_are_its_own(rows: int):
    """Whole numbers have one sum, however many rows are multiplied."""
    head, hidden = NarrowHead.of(head_of(700, 320)), noise(64, 320, dtype=torch.bfloat16)

    assert torch.equal(head.logits(hidden[:rows].contiguous()), head.logits(hidden)[:rows])


def off_by_bound(head: Tensor, hidden: Tensor) -> Tensor:
    """How far scores are from the head's own, by their bounds [M, V]."""
    narrow = NarrowHead.of(head)
    scores, copy = narrow.scores(hidden, len(head)), narrow.copy
    most = torch.outer(scores.facts[1].double(), copy.error.double())
    most += torch.outer(scores.facts[2].double(), copy.length.double()) + 2.0**-90
    return (scores.values.double() - head_linear(hidden, head).double()).abs() / most


@SHAPES
@COUNTS
def test_no_score_is_off_by_more_than_its_bound(shape: tuple[int, int], rows: int):
    """Of any rows, of rows with outliers, and of odd heads."""
    head, hidden = head_of(*shape), noise(rows, shape[1], dtype=torch.bfloat16)
    odd = with_odd_rows(head, hidden[0])

    assert off_by_bound(head, hidden).max() < 1
    assert off_by_bound(head, outliers(hidden)).max() < 1
    assert off_by_bound(odd, outliers(hidden)).nan_to_num(0).max() < 1


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32], ids=str)
def test_rows_that_lose_most_stay_within_their_bound(dtype: torch.dtype):
    """Those that lie along what the copy has lost of a row of the head come near it."""
    head = head_of(200, 256, dtype=dtype)
    copy = NarrowHead.of(head).copy
    lost = head.double() - copy.weight.double() * copy.scale.double()[:, None]

    off = off_by_bound(head, (lost[:64] * 1e4).to(dtype))

    assert off.max() < 1
    assert off.diagonal().min() > 0.9


@pytest.mark.parametrize("size", [1e-38, 1e-20, 1.0, 1e20, 1e36])
def test_units_hold_rows_of_any_size(size: float):
    """|x| and |d| are never less than they are, and hardly more."""
    hidden = (noise(7, 300) * size).to(torch.bfloat16)
    unit, x, d = NarrowHead.of(head_of(40, 300)).scores(hidden, 40).facts.double()

    wanted = hidden.double().norm(dim=-1)
    assert torch.all(x >= wanted)
    assert torch.all(x <= wanted * 1.01 + 2.0**-119)
    assert torch.all(d <= unit * 300**0.5 + 2.0**-119)


def test_a_row_of_zeros_stays_one():
    """No division by its largest value, in the head or among the rows."""
    zeros = torch.zeros(16, 32, dtype=torch.bfloat16, device=CUDA)

    assert not NarrowHead.of(zeros).logits(noise(1, 32, dtype=torch.bfloat16)).any()
    assert not NarrowHead.of(head_of(16, 32)).logits(zeros).any()


@triton.jit
def _there_and_back(X, KEYS, Y, COUNT: tl.constexpr):
    at = tl.arange(0, COUNT)
    keys = ordered(tl.load(X + at))
    tl.store(KEYS + at, keys)
    tl.store(Y + at, unordered(keys))


def test_numbers_rise_with_what_they_are_ordered_by():
    """Zeros are one number, and NaN of any sign is above infinity."""
    numbers = [-torch.inf, -3e38, -1.0, -1e-45, 0.0, 1e-45, 1.0, 3e38, torch.inf]
    x = torch.tensor([*numbers, torch.nan, -torch.nan, -0.0] + [1.0] * 4, device=CUDA)
    keys, y = torch.empty_like(x, dtype=torch.int32), torch.empty_like(x)

    _there_and_back[(1,)](x, keys, y, COUNT=16)

    rising = keys[:10].tolist()
    assert rising == sorted(set(rising))
    assert keys[10] == keys[9]
    assert keys[11] == keys[4]
    assert torch.equal(y.nan_to_num(7, 8, 9), x.nan_to_num(7, 8, 9))


@pytest.mark.parametrize("name", FORMS)
def test_a_packed_head_drafts_by_its_own_logits(name: str):
    """Bit for bit, and without a copy."""
    head = Packed((FORMS[name](8256, 256),), torch.bfloat16)
    hidden = noise(1, 256, dtype=torch.bfloat16)

    assert torch.equal(WholeHead(head).logits(hidden), head_linear(hidden, head))
