"""An engine whose device goes one row ahead: nobody can tell but by a clock."""

from collections.abc import Callable

import attrs
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from flashrt.engine.ahead import Likeliest
from flashrt.engine.buffers import CHUNK
from flashrt.engine.hybrid import HybridEngine
from flashrt.engine.protocol import Capsule
from flashrt.engine.sampler import NoFiniteLogits, Sampler
from flashrt.errors import EngineFailed
from tests.engine.contract import CHECKS, fill, same_capsule
from tests.engine.drafted import chunks_of, make_drafted
from tests.engine.models import Shape, ids
from tests.engine.moving import MOVING
from tests.engine.sharing import SHARING
from tests.engine.walking import GREEDY, LISTS, STARTS, WAYS, check_walk

SMALL = Shape(layers=2, interval=2, vocab=5)
"""So few ids that another text often has the same one at the same place."""

ON_GPU = [
    (torch.bfloat16, Shape(layers=2, interval=2)),
    (torch.float32, Shape(layers=2, interval=2)),
    (torch.bfloat16, Shape(layers=2, interval=2, experts=5, experts_per_row=2)),
]
MODELS = [
    ("cpu", torch.bfloat16, SMALL),
    *(pytest.param(("cuda", *one), marks=pytest.mark.gpu) for one in ON_GPU),
]


def named(model: tuple) -> str:
    """Of one of them."""
    device, dtype, shape = model
    return f"{device} {dtype}" + " mixture" * bool(shape.experts)


Pair = tuple[HybridEngine, HybridEngine]


def pair_of(device: str, dtype: torch.dtype, shape: Shape, **more: int) -> Pair:
    """One that runs ahead, and one that never does."""
    ahead, behind = (make_drafted(shape, dtype=dtype, device=device, **more) for _ in range(2))
    ahead._live.model.runs_ahead, behind._live.model.runs_ahead = True, False
    return ahead, behind


@pytest.fixture(scope="module", params=MODELS, ids=named)
def pair(request: pytest.FixtureRequest) -> Pair:
    return pair_of(*request.param, max_seq=448)


@pytest.fixture
def engines(pair: Pair) -> Pair:
    for one in pair:
        one.reset()
    return pair


@pytest.fixture
def ahead(engines: Pair) -> HybridEngine:
    return engines[0]


@pytest.fixture
def launched(ahead: HybridEngine, monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int]]:
    """Who had a row computed, the host or the device, and at which position."""
    model, seen = ahead._live.model, []
    rows, row_ahead = model.rows, model.row_ahead
    monkeypatch.setattr(
        model, "rows", lambda ids, *at: seen.append(("host", at[0])) or rows(ids, *at)
    )
    monkeypatch.setattr(
        model, "row_ahead", lambda id_, *at: seen.append(("device", at[0])) or row_ahead(id_, *at)
    )
    return seen


def test_every_row_but_the_first_and_those_behind_a_fold_is_begun_ahead(ahead, launched):
    """A fold stores an anchor, which lengths alone would not take back."""
    fill(ahead, ids(60, 5))
    chunks_of(ahead, 80, GREEDY)
    assert launched == [
        ("host" if at in (60, CHUNK, 2 * CHUNK) else "device", at) for at in range(60, 140)
    ]


def test_ids_and_bytes_are_those_of_an_engine_that_never_runs_ahead(engines):
    """At every boundary over two folds."""
    for one in engines:
        fill(one, ids(60, 5))
    for _, *chunks in zip(range(80), *(one.decode(GREEDY) for one in engines), strict=False):
        assert chunks[0] == chunks[1]
        assert engines[0].position == engines[1].position
        assert same_capsule(*(one.snapshot() for one in engines))


@pytest.mark.parametrize("way", ["drafted", "seeded"])
def test_a_row_ahead_serves_whatever_decode_comes_next(engines, way):
    """A call that draws or drafts takes the row, where its first step is just this one."""
    for one in engines:
        fill(one, ids(20, 5))
        chunks_of(one, 5, GREEDY)
        assert (one._live.ahead is not None) == (one is engines[0])
        chunks_of(one, 30, WAYS[way])
    assert same_capsule(*(one.snapshot() for one in engines))


def test_rows_are_begun_only_where_the_device_can_choose(ahead, launched):
    """Not where noise, penalties, a constraint or drafts have a say, nor where the row is to be
    read once more."""
    fill(ahead, ids(20, 5))
    free = lambda accepted, draft: [None] * (len(draft) + 1)  # noqa: E731
    for params in (
        WAYS["seeded"],
        attrs.evolve(GREEDY, frequency_penalty=0.1),
        attrs.evolve(GREEDY, logit_bias={1: 1.0}),
        attrs.evolve(GREEDY, logprobs=1),
        WAYS["drafted"],
    ):
        chunks_of(ahead, 4, params)
    chunks_of(ahead, 4, GREEDY, free)
    assert {who for who, _ in launched} == {"host"}


def test_no_row_is_begun_for_an_answer_of_one_id(ahead, launched):
    """The first id behind a prompt costs no row, and nothing is begun behind it."""
    fill(ahead, ids(20, 5))
    chunks_of(ahead, 1, GREEDY)
    assert launched == []


def test_no_row_is_begun_behind_the_window(ahead, launched):
    """The last id of a full journal is never processed."""
    room = ahead.info.max_seq
    fill(ahead, ids(room - 5, 5))
    assert sum(len(chunk.tokens) for chunk in ahead.decode(GREEDY)) == 5
    assert [at for _, at in launched] == [*range(room - 5, room - 1)]


def test_a_stop_id_is_never_counted_as_processed(engines):
    """The device has begun with it; the state ends before it, and a prompt replaces it."""
    for one in engines:
        fill(one, (1, 2, 3, *ids(20, 5)))
    first, *text = (chunk.tokens[0] for chunk in chunks_of(engines[1], 30, GREEDY))
    stop = next(id_ for id_ in text[4:] if id_ != first)
    engines[1].rollback(29)
    ends = []
    for one in engines:
        if one is engines[0]:
            chunks_of(one, 1, GREEDY)
        chunks = list(one.decode(attrs.evolve(GREEDY, stop_ids=frozenset({stop}))))
        assert chunks[-1].tokens == (stop,)
        ends.append(one.snapshot())
        fill(one, (4, *ids(9, 5, seed=2)))
        ends.append(one.snapshot())
    assert same_capsule(ends[0], ends[2])
    assert same_capsule(ends[1], ends[3])


def roll_back(engine: HybridEngine, _start: Capsule) -> None:
    """To a place three ids before."""
    engine.rollback(3)
    engine.drop_pending()


def read_anew(engine: HybridEngine, _start: Capsule) -> None:
    """Another text up to the same place."""
    engine.rollback(2)
    engine.drop_pending()
    fill(engine, ((engine.journal[-1] + 1) % 5, 1))


def restore(engine: HybridEngine, start: Capsule) -> None:
    """To where decoding began."""
    engine.restore(start)


@pytest.mark.parametrize("leave", [roll_back, read_anew, restore], ids=lambda leave: leave.__name__)
def test_a_row_ahead_of_a_text_that_is_gone_is_not_taken(engines, leave):
    """Where the same id is pending behind another text, or at another place."""
    for one in engines:
        fill(one, ids(20, 5))
        start = one.snapshot()
        chunks_of(one, 6, GREEDY)
        pending = one.journal[-1]
        assert one._live.ahead == (pending if one is engines[0] else None)
        leave(one, start)
        one._journal.append(pending)  # as by a decode that chooses it here
        chunks_of(one, 3, GREEDY)
    assert same_capsule(*(one.snapshot() for one in engines))


def test_a_row_ahead_is_not_taken_for_another_id(engines):
    """Chosen in place of the dropped one."""
    for one in engines:
        fill(one, ids(20, 5))
        chunks_of(one, 6, GREEDY)
        other = (one.journal[-1] + 1) % 5
        one.drop_pending()
        chunks_of(one, 3, GREEDY, lambda accepted, draft, other=other: [other])
    assert same_capsule(*(one.snapshot() for one in engines))


def test_a_broken_row_is_refused_as_ever_and_counts_nothing(ahead, monkeypatch):
    """The device has gone on behind nonsense; the host has not."""
    fill(ahead, ids(20, 5))
    chunks_of(ahead, 3, GREEDY)
    at, journal, newest = ahead.position, tuple(ahead.journal), ahead._live.model.newest
    with monkeypatch.context() as broken:
        broken.setattr(ahead._live.model, "newest", lambda *rows: newest(*rows) * torch.nan)
        with pytest.raises(NoFiniteLogits):
            next(ahead.decode(GREEDY))
    assert (ahead.position, tuple(ahead.journal)) == (at + 1, journal)
    assert ahead._live.ahead is None


def test_a_row_ahead_that_fails_leaves_no_state(ahead, monkeypatch):
    """As any step of the forward pass that fails half-way."""

    def fails(*_: object) -> None:
        raise RuntimeError("out of luck")

    fill(ahead, ids(20, 5))
    chunks_of(ahead, 1, GREEDY)
    with monkeypatch.context() as broken:
        broken.setattr(ahead._live.model, "row_ahead", fails)
        with pytest.raises(EngineFailed, match="out of luck"):
            next(ahead.decode(GREEDY))
    assert (ahead.position, tuple(ahead.journal), ahead._live.ahead) == (0, (), None)


@pytest.mark.gpu
def test_the_host_has_an_id_while_the_device_is_at_the_next_row(monkeypatch):
    """The row ahead takes a second here, and is not waited for."""
    ahead, _ = pair_of("cuda", *ON_GPU[0], max_seq=256)
    model, row_ahead, done = ahead._live.model, ahead._live.model.row_ahead, torch.cuda.Event()

    def slow(*arguments: object) -> None:
        row_ahead(*arguments)
        torch.cuda._sleep(2_000_000_000)
        done.record()

    fill(ahead, ids(20, 5))
    chunks_of(ahead, 9, GREEDY)  # all kernels are loaded
    monkeypatch.setattr(model, "row_ahead", slow)
    next(ahead.decode(GREEDY))

    assert not done.query()


@given(
    st.lists(st.lists(st.integers(-3, 3), min_size=9, max_size=9), min_size=1, max_size=64),
    st.integers(1, 9),
)
def test_the_ids_that_are_sent_are_the_samplers(scores, sampleable):
    """Its own choice of each row; of equals the lowest."""
    rows = torch.tensor(scores, dtype=torch.float32)
    sampler, likeliest = Sampler(9, sampleable), Likeliest(rows.device)

    likeliest.send(*rows[:, :sampleable].max(-1))
    found = likeliest.read()

    for row, shortlist in zip(rows, found, strict=True):
        assert shortlist is not None
        assert shortlist[0].tolist() == [sampler.choose(row, GREEDY, journal=(), allowed=None)]
        assert shortlist[1] == row[shortlist[0][0]]


@pytest.mark.parametrize("bad", [torch.nan, torch.inf])
def test_a_broken_row_sends_no_id(bad):
    """So the sampler looks itself, and says what is wrong; the others have theirs."""
    likeliest = Likeliest(torch.device("cpu"))
    likeliest.send(*torch.tensor([[0.0, bad, 1.0], [0.0, 2.0, 1.0]]).max(-1))
    broken, sound = likeliest.read()
    assert broken is None
    assert sound is not None
    assert sound[0].tolist() == [1]


# -- any interleaving ------------------------------------------------------------------------------


@settings(max_examples=8, deadline=None)
@given(start=STARTS, acts=LISTS)
def test_no_caller_can_tell(pair, start, acts):
    """Generated calls in any order: the same answers, refusals and bytes as without."""
    check_walk(pair, start, acts)


@pytest.fixture(scope="module", params=[torch.bfloat16, torch.float32], ids=str)
def cpu_pair(request: pytest.FixtureRequest) -> Pair:
    return pair_of("cpu", request.param, SMALL, max_seq=448)


@pytest.mark.slow  # half a minute each
@settings(max_examples=300, deadline=None)
@given(start=STARTS, acts=LISTS)
def test_no_caller_can_tell_in_many_walks(cpu_pair, start, acts):
    """The same, many times."""
    check_walk(cpu_pair, start, acts)


# -- the contract ----------------------------------------------------------------------------------

PLACES = [
    ("cpu", torch.float32),
    pytest.param(("cuda", torch.bfloat16), marks=pytest.mark.gpu),
    pytest.param(("cuda", torch.float32), marks=pytest.mark.gpu),
]


@pytest.fixture(scope="module", params=PLACES, ids=str)
def undrafted(request: pytest.FixtureRequest) -> Pair:
    """Without drafters, so that a greedy decode runs ahead by default."""
    shape = Shape(layers=2, interval=2)
    return pair_of(*request.param, shape, max_seq=256, draft_tokens_max=0)


@pytest.mark.parametrize("check", [*CHECKS, *SHARING, *MOVING], ids=lambda check: check.__name__)
def test_an_engine_that_runs_ahead_keeps_the_contract(
    undrafted: Pair, check: Callable[[HybridEngine, HybridEngine], None]
):
    """The law named by the check, against an oracle that never runs ahead."""
    for one in undrafted:
        one.reset()
    check(*undrafted)
