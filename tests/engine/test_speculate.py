"""Drafts are free: the same ids and the same bytes of state with any drafter, any depth or none."""

import copy
import functools
from collections.abc import Callable, Sequence

import attrs
import pytest
import torch

from flashrt.engine.protocol import Capsule, SamplingParams
from flashrt.engine.speculate import Draft, Drafting
from tests.engine.contract import CHECKS, fill, same_capsule
from tests.engine.drafted import (
    DTYPES,
    MODELS,
    OFF,
    PIECE,
    SEEDED,
    DraftedEngine,
    Scripted,
    adversary,
    chunks_of,
    engine_of,
    make_drafted,
    oracle,
    played,
    started,
)
from tests.engine.models import Shape, ids

SAMPLINGS = {
    "greedy": SamplingParams(),
    "0.7": SamplingParams(temperature=0.7, seed=3),
    "1.0": SamplingParams(temperature=1.0, seed=4),
    "top-k and top-p": SamplingParams(temperature=1.0, top_k=20, top_p=0.8, seed=5),
    "penalties": SamplingParams(
        temperature=0.7, presence_penalty=0.5, frequency_penalty=0.4, repetition_penalty=1.3, seed=6
    ),
    "greedy penalties": SamplingParams(frequency_penalty=0.9, repetition_penalty=1.2),
}
TURNS = (
    ((*ids(150), *PIECE, *ids(30, seed=1), *PIECE[:5]), 66),
    (ids(61, seed=2), 70),
    ((*ids(41, seed=3), *PIECE[:4]), 75),
)
"""Prefilled ids and how many are decoded behind them: 528 in all. The first one quotes itself."""

Script = Callable[[Sequence[int]], Callable[[SamplingParams], Scripted]]


def three_turns(engine: DraftedEngine, params: SamplingParams) -> list[Capsule]:
    """The capsule after each turn."""
    engine.reset()
    ends = []
    for prompt, count in TURNS:
        fill(engine, tuple(id_ % engine.info.vocab_size for id_ in prompt))
        chunks_of(engine, count, params)
        ends.append(engine.snapshot())
    return ends


@functools.cache
def never_drafted(model: str, dtype: str, sampling: str) -> list[Capsule]:
    engine = engine_of(model, dtype)
    engine.script = None
    return three_turns(engine, attrs.evolve(SAMPLINGS[sampling], draft_tokens=0))


def check_drafts_are_free(
    model: str, dtype: str, sampling: str, script: Script | None, depth: int | None
) -> None:
    """Three turns with these drafts end each in the ids and bytes of three turns with none."""
    wanted = never_drafted(model, dtype, sampling)
    engine = engine_of(model, dtype)
    engine.script = script(wanted[-1].tokens) if script else None
    got = three_turns(engine, attrs.evolve(SAMPLINGS[sampling], draft_tokens=depth))
    engine.script = None
    assert len(got[-1].tokens) >= 512
    assert "mtp_kv" in got[-1].rows[0].buffers
    for one, other in zip(got, wanted, strict=True):
        assert one.tokens == other.tokens
        assert same_capsule(one, other)


SCRIPTS: dict[str, Script] = {
    "oracle 3": lambda text: oracle(text, 3),
    "oracle 63": lambda text: oracle(text, 63),
    "adversary 5": lambda text: adversary(text, 5),
    "now so, now so": lambda text: (
        lambda params: Scripted(text, [(4, 2), (0, 0), (7, 7), (1, 0), (20, 11), (2, 1), (63, 40)])
    ),
}
DRAFTS: dict[str, tuple[Script | None, int | None]] = {
    **{f"mtp {k}": (None, k) for k in range(1, 9)},
    "adaptive": (None, None),
    **{name: (script, None) for name, script in SCRIPTS.items()},
}
QUICK = [
    ("dense", "float32", "greedy", "adaptive"),
    ("dense", "bfloat16", "1.0", "mtp 3"),
    ("dense", "float32", "penalties", "now so, now so"),
    ("dense", "bfloat16", "greedy penalties", "oracle 63"),
    ("mixture", "bfloat16", "0.7", "mtp 1"),
    ("guessed", "bfloat16", "1.0", "adaptive"),
    ("guessed", "bfloat16", "penalties", "mtp 2"),
]


@pytest.mark.parametrize(("model", "dtype", "sampling", "drafts"), QUICK)
def test_drafts_are_free(model, dtype, sampling, drafts):
    """Ids and all bytes after each of three turns, with and without drafts."""
    check_drafts_are_free(model, dtype, sampling, *DRAFTS[drafts])


@pytest.mark.slow
@pytest.mark.parametrize("drafts", DRAFTS)
@pytest.mark.parametrize("sampling", SAMPLINGS)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("model", MODELS)
def test_drafts_are_free_in_every_combination(model, dtype, sampling, drafts):
    """Every kind of model, both dtypes, every way of sampling, every drafter and depth."""
    check_drafts_are_free(model, dtype, sampling, *DRAFTS[drafts])


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_accept_boundary_can_be_left_and_come_back_to(dtype):
    """Saved after each burst, over a fold: restored, drafting or not, it goes on as if never left;
    and by length, a capsule inside a burst is the one of a step without drafts."""
    engine = started(dtype=dtype)
    start = engine.snapshot()
    chunks_of(engine, 60, OFF)
    text, end = tuple(engine.journal), engine.snapshot()
    engine.restore(start)
    plan = [(5, 2), (8, 8), (3, 0), (30, 17)]
    engine.script = lambda params: Scripted(text, plan)
    saved = []
    for chunk in engine.decode(SEEDED):
        inside = engine.position - len(chunk.tokens) // 2
        saved += [engine.snapshot(), engine.snapshot(inside)]
        if len(engine.journal) >= len(text) - 1:
            break
    assert len(saved) >= 10
    engine.restore(start)
    by_length = {}
    engine.script = None
    for _ in engine.decode(OFF):
        by_length[engine.position] = engine.snapshot()
        if len(engine.journal) == len(text) + 1:
            break
    for capsule in saved:
        there = by_length[capsule.position]
        assert capsule.tokens == there.tokens[: len(capsule.tokens)]
        assert same_capsule(attrs.evolve(capsule, pending=there.pending), there)
        engine.script = lambda params: Scripted(text, plan[::-1])
        left = len(text) - len(capsule.tokens)
        if left > 0:
            assert same_capsule(played(engine, capsule, left, SEEDED)[1], end)


def test_a_session_forked_in_two_goes_two_ways():
    """One with drafts of one kind, one with another seed: each is what it is without drafts."""
    engine = started()
    chunks_of(engine, 21, attrs.evolve(SEEDED, draft_tokens=3))
    fork = engine.snapshot()
    for seed in (1, 2):
        one = attrs.evolve(SEEDED, seed=seed)
        plain = played(engine, fork, 50, attrs.evolve(one, draft_tokens=0))[1]
        for depth in (None, 1, 5):
            assert same_capsule(
                played(engine, fork, 50, attrs.evolve(one, draft_tokens=depth))[1], plain
            )


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("at", range(6))
def test_a_stop_inside_a_burst_ends_exactly_there(dtype, at):
    """The stop id is pending, nothing behind it is known, and an appended prompt goes on as it does
    behind single steps."""
    engine = started(dtype=dtype)
    start = engine.snapshot()
    played(engine, start, 40, OFF)
    text = engine.journal
    seen = text[start.position :]
    stop = next(id_ for id_ in seen[at + 8 :] if id_ not in seen[: at + 8])
    ends = []
    for draft_tokens, script in ((0, None), (None, oracle(text, 40)), (None, oracle(text, 5))):
        engine.restore(start)
        engine.script = script
        params = attrs.evolve(SEEDED, draft_tokens=draft_tokens, stop_ids=frozenset({stop}))
        chunks = list(engine.decode(params))
        assert engine.journal[-1] == stop
        assert engine.position == len(engine.journal) - 1
        assert chunks[-1].tokens[-1] == stop
        stopped = engine.snapshot()
        fill(engine, (stop, *ids(30, seed=9)))
        chunks_of(engine, 5, OFF)
        ends.append((stopped, engine.snapshot(), len(chunks)))
    assert ends[1][2] <= 3 < ends[0][2]
    for stopped, appended, _ in ends[1:]:
        assert same_capsule(stopped, ends[0][0])
        assert same_capsule(appended, ends[0][1])


def test_an_unused_stop_id_is_never_drafted_by_the_layer():
    """Its own row chooses it, so a draft ends before it and no row is spent behind it."""
    engine = started()
    start = engine.snapshot()
    (stop,) = played(engine, start, 9, OFF)[0][-1].tokens
    params = attrs.evolve(SEEDED, draft_tokens=8, stop_ids=frozenset({stop}))
    drafts: list[tuple[int, ...]] = []

    def watch(accepted: Sequence[int], draft: Sequence[int]) -> list[None]:
        drafts.append(tuple(draft))
        return [None] * (len(draft) + 1)

    engine.restore(start)
    list(engine.decode(params, watch))
    assert any(drafts)
    assert not any(stop in draft for draft in drafts)


@pytest.mark.parametrize("dtype", DTYPES)
def test_depth_may_change_in_mid_generation(dtype):
    """A new call of decode with another depth after any burst: the same text and bytes."""
    engine = started(dtype=dtype)
    start = engine.snapshot()
    _, wanted = played(engine, start, 90, OFF)
    engine.restore(start)
    goal = len(wanted.tokens)
    for depth in (3, 0, 8, None, 1, 2, 0, 5) * 9:
        if (left := goal - len(engine.journal)) > 0:
            chunks_of(engine, min(left, 3), attrs.evolve(SEEDED, draft_tokens=depth))
    assert same_capsule(engine.snapshot(), wanted)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    "before", [1, *(pytest.param(n, marks=pytest.mark.slow) for n in (2, 5)), 13]
)
def test_a_draft_over_a_fold_leaves_no_trace(dtype, before):
    """Begun before a multiple of 64 and kept in part: the state, and a rollback by 64 from it, are
    those of single steps."""
    engine = started(dtype=dtype, count=128 - before)
    start, prompt = engine.snapshot(), engine.journal
    chunks_of(engine, 30, OFF)
    text, wanted = engine.journal, engine.snapshot()
    engine.rollback(64)
    shorter = engine.snapshot()
    engine.restore(start)
    for kept in {0, before - 1, before, before + 1}:
        engine.reset()
        fill(engine, prompt)
        engine.script = lambda params, kept=kept: Scripted(text, [(16, kept)])
        _, second = chunks_of(engine, kept + 2, SEEDED)
        assert (second.drafted, len(second.tokens)) == (16, kept + 1)
        engine.rollback(1)
        chunks_of(engine, len(text) - len(engine.journal), SEEDED)
        assert same_capsule(engine.snapshot(), wanted)
        engine.rollback(64)
        assert same_capsule(engine.snapshot(), shorter)
    engine.script = None


@pytest.mark.parametrize("before", [2, 5, 13])
def test_a_rejected_draft_over_a_fold_does_not_shorten_the_reach_of_a_rollback(before):
    """Below the chunk that holds the text, as far as single steps reach."""
    engine = started(count=128 - before)
    text = (*engine.journal, *ids(60))
    engine.script = adversary(text, 20)
    chunks_of(engine, 2, SEEDED)
    engine.script = None
    engine.rollback(64)
    assert engine.position == 128 - before + 1 - 64 < 64
    engine.rollback(50)


def test_the_longest_draft_shortly_before_a_fold_leaves_the_oldest_rows():
    """It is shorter than 63 there: a rollback as far as there is reach still has its rows."""
    engine = started(count=126)
    text = (*engine.journal, *ids(80))
    engine.script = adversary(text, 63)
    drafted = [chunk.drafted for chunk in chunks_of(engine, 2, SEEDED)]
    engine.script = None
    assert drafted == [0, 62]
    engine.rollback(64)
    engine.rollback(63)
    assert engine.position == 0


@attrs.define
class Clairvoyant:
    """Asks a twin that goes ahead of the engine; so nearly every draft is right."""

    engine: DraftedEngine
    twin: DraftedEngine
    params: SamplingParams

    def propose(self, journal: list[int], room: int) -> Draft:
        """What the twin decodes from here."""
        count = min(room, 1 + len(journal) % 6)
        self.twin.restore(self.engine.snapshot())
        chunks = chunks_of(self.twin, count, attrs.evolve(self.params, draft_tokens=0))
        return Draft(tuple(id_ for chunk in chunks for id_ in chunk.tokens), "twin")

    def observe(self, draft: Draft, tokens: Sequence[int]) -> None:
        """Nothing to learn."""


@functools.cache
def clairvoyant_pair() -> tuple[DraftedEngine, DraftedEngine]:
    engine = make_drafted(Shape(layers=2, interval=2), dtype=torch.bfloat16, max_seq=256)
    oracle, twin = copy.deepcopy(engine), copy.deepcopy(engine)

    def script(params: SamplingParams) -> Drafting:
        if params.draft_tokens is None:
            return Clairvoyant(engine, twin, params)
        return DraftedEngine._drafting(twin, params)

    engine.script = script
    return engine, oracle


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_an_engine_whose_drafts_are_right_keeps_the_contract(check):
    """The law named by the check holds when every step is a burst."""
    for one in clairvoyant_pair():
        one.reset()
    check(*clairvoyant_pair())
