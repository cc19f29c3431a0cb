"""The best ids, found with most of the head unread."""

import attrs
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from flashrt.engine.selfcheck import same_bits
from tests.engine.contract import fill
from tests.engine.drafted import chunks_of, make_drafted
from tests.engine.kernels.compare import CUDA, noise
from tests.engine.kernels.heads import head_of, outliers, with_odd_rows
from tests.engine.models import PLAIN, ids
from tests.engine.walking import GREEDY, WAYS

from flashrt.engine.kernels.besthead import CANDIDATES, BestHead  # isort: skip
from flashrt.engine.kernels.linear import head_linear  # isort: skip
from flashrt.engine.kernels.narrowhead import NarrowHead  # isort: skip

pytestmark = pytest.mark.gpu

SHAPES = pytest.mark.parametrize(
    "shape", [(61, 64), (300, 33), (8256, 128), (20000, 5120)], ids=str
)
COUNTS = pytest.mark.parametrize("rows", [1, 3, 8, 16, 17, 33, 64])
ROOM = pytest.mark.parametrize("candidates", [1, 40, CANDIDATES])
"""What is left is listed, or is too much, so that all of the head is read."""


def best_of(head: Tensor, candidates: int = CANDIDATES) -> BestHead:
    return attrs.evolve(BestHead.of(head, NarrowHead.of(head)), candidates=candidates)


def check(
    head: Tensor, hidden: Tensor, candidates: int = CANDIDATES, limit: int | None = None
) -> None:
    """The best scores and ids are those of all scores, bit for bit."""
    limit = len(head) if limit is None else limit
    values, chosen = best_of(head, candidates).best(hidden, limit)
    wanted = head_linear(hidden, head)[:, :limit].max(-1)

    assert chosen.tolist() == wanted.indices.tolist()
    assert same_bits(values, wanted.values)


def left(head: Tensor, hidden: Tensor) -> int:
    """How many ids may be the best of any row."""
    best = best_of(head)
    scores = best.narrow.scores(hidden, len(head))
    best._left(scores)
    return int(scores.marks[0])


@SHAPES
@COUNTS
@ROOM
def test_the_best_ids_are_those_of_all_scores(shape: tuple[int, int], rows: int, candidates: int):
    """Of random heads and rows."""
    check(head_of(*shape), noise(rows, shape[1], dtype=torch.bfloat16), candidates)


@pytest.mark.parametrize("rows", [1, 4, 64])
def test_a_whole_vocabulary_is_chosen_from(rows: int):
    """The shape that this is for."""
    check(head_of(248320, 5120), noise(rows, 5120, dtype=torch.bfloat16))


def test_few_ids_are_left():
    """Or nothing would be won."""
    head = head_of(20000, 5120)

    assert 1 <= left(head, noise(1, 5120, dtype=torch.bfloat16)) < 1000
    # A row that the model is sure of.
    assert left(head, (head[7:8].float() * 50).to(torch.bfloat16)) == 1


@settings(max_examples=60, deadline=None)
@given(
    st.integers(0, 2**31), st.integers(1, 64), st.integers(1, 900), st.integers(1, 300),
    st.sampled_from((1, 7, CANDIDATES)), st.floats(0, 1),
)  # fmt: skip
def test_whole_numbers_have_many_equals(seed, rows, count, columns, candidates, share):
    """Generated heads of few values, repeated over tiles: the lowest of the best ids is chosen."""
    generator = torch.Generator(device=CUDA).manual_seed(seed)
    draw = lambda *shape: torch.randint(-2, 3, shape, generator=generator, device=CUDA)  # noqa: E731
    head = draw(max(1, count // 5), columns).repeat(6, 1).to(torch.bfloat16)
    limit = max(1, int(share * len(head)))

    check(head, draw(rows, columns).to(torch.bfloat16), candidates, limit)


@ROOM
@pytest.mark.parametrize("rows", [1, 8, 40])
def test_equal_rows_of_the_head_give_the_lowest_id(rows: int, candidates: int):
    """In one tile and in others, for each of the rows."""
    hidden = noise(rows, 256, dtype=torch.bfloat16)
    head = head_of(5000, 256)
    for at in (4999, 2048, 65, 64, 63):
        head[at - rows + 1 : at + 1] = hidden

    check(head, hidden, candidates)
    check(head, hidden, candidates, limit=4999)


@pytest.mark.parametrize("flips", [1, 3, 50])
def test_scores_that_differ_by_a_last_digit_are_told_apart(flips: int):
    """The copy has the same 8 bits of both."""
    hidden = noise(4, 320, dtype=torch.bfloat16)
    head = head_of(3000, 320)
    for at, row in ((10, 0), (700, 1), (701, 2), (2000, 3)):
        head[at : at + 9] = hidden[row]
        for i in range(9):
            digits = head[at + i].view(torch.int16)
            digits[(i * 31) % 320 : (i * 31) % 320 + flips] += 1 - 2 * (i % 2)

    check(head, hidden)


@pytest.mark.parametrize("share", [0.2, 0.5, 0.8])
@pytest.mark.parametrize("sign", [1, -1])
def test_an_id_that_its_copy_hides_is_found(sign: int, share: float):
    """The hidden row lies along what the copy has lost of id 700, whose score is nearly zero there:
    it is above the one of id 9, which the copy knows; or below, and is no better for it."""
    head = head_of(3000, 256)
    copy = NarrowHead.of(head).copy
    known = copy.weight[700].double() * copy.scale[700].double()
    lost = head[700].double() - known
    x = sign * (lost - known * (lost @ known) / (known @ known))
    hidden = (x / x.norm() * 10).to(torch.bfloat16)[None]
    score = sign * float(lost.norm()) * 10
    head[:] = -hidden.float() * 0.01
    head[700] = (known + lost).to(torch.bfloat16)
    head[9] = hidden.double() * (score * share / 100)

    assert int(head_linear(hidden, head).argmax()) == (700 if sign > 0 else 9)
    check(head, hidden)


@COUNTS
@ROOM
def test_heads_with_odd_rows_are_chosen_from(rows: int, candidates: int):
    """Zeros, huge and tiny numbers, outliers in a row of the head and in the rows."""
    hidden = noise(rows, 256, dtype=torch.bfloat16)
    head = head_of(3000, 256)

    check(head, outliers(hidden), candidates)
    check(with_odd_rows(head, hidden[0]), hidden, candidates)
    check(with_odd_rows(head, hidden[0])[4:].contiguous(), outliers(hidden), candidates)


@pytest.mark.parametrize("size", [1e-38, 1e-20, 1e15])
def test_numbers_of_any_size_are_chosen_by(size: float):
    """Where bounds are below what float32 holds, or products near its end."""
    hidden = (noise(3, 128) * size).to(torch.bfloat16)

    check(head_of(3000, 128), hidden)
    check((head_of(3000, 128).float() * 1e-36).to(torch.bfloat16), hidden)
    check((head_of(3000, 128).float() * 1e15).to(torch.bfloat16), hidden)


@ROOM
def test_where_all_are_equal_the_first_is_chosen(candidates: int):
    """A row of zeros, and a head of one row: nothing can be left out."""
    rows, head = noise(3, 128, dtype=torch.bfloat16), head_of(20000, 128)
    rows[1] = 0

    check(head, rows, candidates)
    check(head[:1].repeat(20000, 1), rows, candidates)
    assert left(head, rows) == len(head)


@ROOM
@pytest.mark.parametrize("bad", [torch.nan, torch.inf, -torch.inf])
def test_a_broken_row_has_no_finite_score(bad: float, candidates: int):
    """And the rows beside it have theirs."""
    head, hidden = head_of(3000, 128), noise(4, 128, dtype=torch.bfloat16)
    wanted = head_linear(hidden, head).max(-1)
    hidden[2, 5] = bad

    values, chosen = best_of(head, candidates).best(hidden, len(head))

    assert not torch.isfinite(values[2])
    for row in (0, 1, 3):
        assert chosen[row] == wanted.indices[row]
        assert same_bits(values[row], wanted.values[row])


def test_a_broken_row_of_the_head_breaks_every_row():
    """As among all scores, unless its id belongs to no token."""
    head, hidden = head_of(3000, 128), noise(4, 128, dtype=torch.bfloat16)
    head[2900, 3] = torch.nan

    assert best_of(head).best(hidden, 3000)[0].isnan().all()
    check(head, hidden, limit=2900)


@pytest.mark.parametrize("limit", [1, 2, 63, 64, 65, 1000, 2999])
def test_ids_behind_the_limit_are_never_chosen(limit: int):
    """Be they as likely as they want."""
    head, hidden = head_of(3000, 128), noise(3, 128, dtype=torch.bfloat16)
    head[limit:] *= 100

    check(head, hidden, limit=limit)
    check(head, hidden, candidates=1, limit=limit)


@torch.inference_mode()
@pytest.mark.parametrize("mtp", [False, True], ids=["no mtp", "mtp"])
@pytest.mark.parametrize("way", ["greedy", "drafted"])
def test_an_engine_says_what_it_says_by_all_scores(mtp: bool, way: str, monkeypatch):
    """Ids and state, step by step; and all scores are computed in one of the two alone."""
    ours, theirs = (
        make_drafted(PLAIN, dtype=torch.bfloat16, device="cuda", max_seq=256, mtp=mtp)
        for _ in range(2)
    )
    theirs._live.model._best_head = None
    monkeypatch.setattr(ours._live.model, "head", None)
    said = []
    for engine in (ours, theirs):
        fill(engine, ids(50))
        said.append(chunks_of(engine, 80, GREEDY if way == "greedy" else WAYS[way]))

    assert said[0] == said[1]
    assert ours.journal == theirs.journal
