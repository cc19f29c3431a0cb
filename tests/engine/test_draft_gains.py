"""What drafts gain, and the limits that they keep."""

import functools
from collections.abc import Callable, Sequence

import attrs
import numpy as np
import pytest
import torch

from flashrt.engine.drafting.depth import LOOKUP, MTP, Choice, DraftDepth
from flashrt.engine.drafting.lookup import PromptLookup
from flashrt.engine.protocol import Capsule, DecodeChunk, EngineMisuse, SamplingParams
from flashrt.engine.sampler import NoFiniteLogits, Sampler
from flashrt.engine.speculate import COSTS, AdaptiveDrafts, accept
from tests.engine.contract import fill, same_capsule
from tests.engine.drafted import (
    GUESSED,
    OFF,
    SEEDED,
    DraftedEngine,
    Scripted,
    adversary,
    chunks_of,
    make_drafted,
    oracle,
    played,
    started,
)
from tests.engine.models import ids


def test_an_oracle_of_three_gives_almost_four_ids_a_step():
    """At least 3.8 over 200 ids, the first step included, which has nothing to draft behind."""
    engine = started()
    start = engine.snapshot()
    played(engine, start, 200, OFF)
    engine.script = oracle(engine.journal, 3)
    chunks, _ = played(engine, start, 200, SEEDED)
    engine.script = None
    assert sum(len(chunk.tokens) for chunk in chunks) / len(chunks) >= 3.8
    assert {chunk.drafter for chunk in chunks if chunk.drafted} == {"script"}


def quoting(file: tuple[int, ...], seen: list[int]) -> Callable[..., list[np.ndarray]]:
    """Allows nothing but the next id of the file."""

    def constraint(accepted: Sequence[int], draft: Sequence[int]) -> list[np.ndarray]:
        seen.extend(accepted)
        rows = []
        for i in range(len(draft) + 1):
            mask = np.zeros(61, np.bool_)
            mask[file[min(len(seen) + i, len(file) - 1)]] = True
            rows.append(mask)
        return rows

    return constraint


@pytest.mark.parametrize("mtp", [False, True], ids=["no layer", "with the layer"])
def test_quoting_a_file_gives_eight_ids_a_step_and_more(mtp):
    """A constraint allows only the next id of a 400-token file that the prompt holds."""
    engine = make_drafted(max_seq=1024, mtp=mtp)
    file = ids(400, seed=21)
    fill(engine, (*ids(50), *file, *ids(30, seed=2)))
    seen: list[int] = []
    chunks = chunks_of(engine, 400, SEEDED, quoting(file, seen))
    assert engine.journal[-400:] == file
    assert len(seen) >= 300
    assert 400 / len(chunks) >= 8
    assert "lookup" in {chunk.drafter for chunk in chunks}


@functools.cache
def guessing() -> DraftedEngine:
    return make_drafted(GUESSED)


@pytest.mark.parametrize("depth", [1, 3])
def test_acceptance_behind_a_restore_is_that_of_a_session_that_never_left(depth):
    """Drafted and accepted step by step: restored at every seventh boundary, what follows is the
    same. Between 30 and 90 % of the drafts are right."""
    engine = guessing()
    engine.reset()
    params = SamplingParams(temperature=1.0, seed=2, draft_tokens=depth)
    fill(engine, tuple(id_ % 3 for id_ in ids(90)))
    start = engine.snapshot()
    steps: list[tuple[Capsule, DecodeChunk]] = []
    only_layer(engine)
    for chunk in engine.decode(params):
        steps.append((engine.snapshot(), chunk))
        if len(steps) == 40:
            break
    drafted = sum(chunk.drafted for _, chunk in steps)
    right = sum(len(chunk.tokens) - 1 for _, chunk in steps)
    assert {chunk.drafter for _, chunk in steps} == {"", "mtp"}
    assert 0.3 <= right / drafted <= 0.9
    for i in range(0, 36, 7):
        engine.reset()
        fill(engine, (0, 1, 2) * 40)
        engine.restore(steps[i][0])
        for (_, wanted), got in zip(steps[i + 1 :], engine.decode(params), strict=False):
            assert got == wanted
    engine.restore(start)


def only_layer(engine: DraftedEngine) -> None:
    """Take lookup away: what is measured is the layer."""
    engine._info = attrs.evolve(engine.info, drafters=("mtp",))


def test_noise_that_both_share_makes_drafts_right_more_often():
    """At temperature 1 the layer's sampled guess is right more often than its likeliest id."""
    engine = guessing()
    only_layer(engine)
    rates = []
    for shared in (True, False):
        engine.reset()
        fill(engine, tuple(id_ % 3 for id_ in ids(90)))
        right = 0
        for _ in range(100):
            (pending,) = chunks_of(engine, 1, SamplingParams(1.0, seed=2, draft_tokens=0))[0].tokens
            at = len(engine.journal)
            params = SamplingParams(1.0 if shared else 0.0, seed=2)
            choose = functools.partial(_choose, engine, params, at)
            (guess,) = engine._live.draft(pending, 1, choose)
            probe = engine.snapshot()
            (next_id,) = chunks_of(engine, 1, SamplingParams(1.0, seed=2, draft_tokens=0))[0].tokens
            right += guess == next_id
            engine.restore(probe)
        rates.append(right)
    assert rates[0] > rates[1] + 5


def _choose(
    engine: DraftedEngine, params: SamplingParams, at: int, row: torch.Tensor, _: Sequence[int]
) -> int:
    return engine._sampler.choose(row, params, journal=[0] * at, allowed=None)


# -- limits ----------------------------------------------------------------------------------------


def test_a_constraint_sees_each_accepted_id_once_and_the_draft():
    """Called once a step with what was accepted since; asked for one row more than the draft."""
    engine = started()
    start = engine.snapshot()
    played(engine, start, 60, OFF)
    text = engine.journal
    engine.restore(start)
    engine.script = lambda params: Scripted(text, [(4, 2), (0, 0), (3, 3)])
    calls: list[tuple[tuple[int, ...], int]] = []

    def free(accepted: Sequence[int], draft: Sequence[int]) -> list[None]:
        calls.append((tuple(accepted), len(draft)))
        return [None] * (len(draft) + 1)

    chunks = chunks_of(engine, 50, SEEDED, free)
    engine.script = None
    assert [count for _, count in calls] == [chunk.drafted for chunk in chunks]
    assert calls[0][0] == ()
    assert [ids_ for ids_, _ in calls[1:-1]] == [chunk.tokens for chunk in chunks[:-2]]
    assert engine.journal == text[: len(engine.journal)]


def test_forced_ids_are_drafted_rows_like_any_other():
    """Every third id is forced: the same bytes with an oracle, an adversary and none."""
    ends = []
    engine = started()
    start = engine.snapshot()

    def forcing() -> Callable[..., list[int | None]]:
        seen: list[int] = []

        def constraint(accepted: Sequence[int], draft: Sequence[int]) -> list[int | None]:
            seen.extend(accepted)
            first = len(seen)
            return [7 if (first + i) % 3 == 0 else None for i in range(len(draft) + 1)]

        return constraint

    text: Sequence[int] = ()
    for script in (None, oracle, adversary):
        engine.restore(start)
        engine.script = script(text, 6) if script else None
        params = SEEDED if script else OFF
        chunks = chunks_of(engine, 45, params, forcing())
        text = engine.journal
        ends.append((engine.snapshot(), len(chunks)))
    engine.script = None
    assert same_capsule(ends[1][0], ends[0][0])
    assert same_capsule(ends[2][0], ends[0][0])
    assert ends[1][1] < 10 < ends[2][1] == 45


def test_too_few_limits_are_refused():
    """A constraint that answers for the pending row only, whatever was drafted."""
    engine = started()
    engine.script = oracle(engine.journal * 2, 3)
    with pytest.raises(EngineMisuse, match="1 limits for 4 rows"):
        chunks_of(engine, 20, SEEDED, lambda accepted, draft: [None])
    engine.script = None


@pytest.mark.parametrize("over", range(6))
def test_the_window_is_filled_and_never_passed(over):
    """Drafts stop where the journal would be full, at every distance from it."""
    engine = make_drafted(max_seq=200)
    fill(engine, ids(150 + over))
    start = engine.snapshot()
    list(engine.decode(OFF))
    wanted, text = engine.snapshot(), engine.journal
    assert len(text) == 200
    for script in (None, oracle(text * 2, 6)):
        engine.restore(start)
        engine.script = script
        list(engine.decode(SEEDED))
        assert same_capsule(engine.snapshot(), wanted)


def test_a_broken_row_behind_a_draft_fails_only_when_it_is_the_first():
    """What was accepted before it counts; the step that it begins raises, as without drafts."""
    journal = [1]

    def choose(row: int) -> int:
        if row == 2:
            raise NoFiniteLogits("broken")
        return 5 + row

    accept(choose, (5, 6, 7), frozenset(), journal)
    assert journal == [1, 5, 6]
    with pytest.raises(NoFiniteLogits):
        accept(lambda row: choose(2), (), frozenset(), journal)
    assert journal == [1, 5, 6]


def test_a_constraint_that_allows_nothing_leaves_the_state_of_single_steps():
    """The row fails in the step that it begins, with the bytes that it has there without drafts."""
    engine = started()
    start = engine.snapshot()
    played(engine, start, 30, OFF)
    text = engine.journal
    ends = []
    for script in (None, oracle(text, 6)):
        engine.restore(start)
        engine.script = script
        seen: list[int] = []

        def constraint(
            accepted: Sequence[int], draft: Sequence[int], seen: list[int] = seen
        ) -> list[np.ndarray]:
            seen.extend(accepted)
            return [np.full(61, len(seen) + i != 17) for i in range(len(draft) + 1)]

        with pytest.raises(EngineMisuse, match="allows no token"):
            chunks_of(engine, 30, SEEDED if script else OFF, constraint)
        ends.append(engine.snapshot())
    engine.script = None
    assert len(ends[0].tokens) == start.position + 17
    assert same_capsule(*ends)


class Waiting(DraftDepth):
    """Drafts nothing as long as it waits."""

    waits = True

    def next(self, lookup_available):
        return Choice("", 0) if self.waits else super().next(lookup_available)


@pytest.mark.parametrize("right", [True, False])
def test_lookup_is_judged_by_steps_in_which_it_did_not_draft(right):
    """A quotation that would have been right is drafted deep at once, a wrong one is not."""
    depth = Waiting(8, COSTS["cpu"], drafters=(LOOKUP,))
    line = list(range(40))
    drafts = AdaptiveDrafts(started()._live, Sampler(64), PromptLookup(), depth, SamplingParams())
    for at in range(5, 15):
        journal = [*line, 50, *line[:at]]
        draft = drafts.propose(journal, 63)
        assert draft.ids == ()
        drafts.observe(draft, (line[at] if right else 60,))
    depth.waits = False

    deep = len(drafts.propose([*line, 50, *line[:15]], 63).ids)
    fresh = DraftDepth(8, COSTS["cpu"], drafters=(LOOKUP,)).next(26).count

    assert deep > fresh if right else deep <= fresh


@pytest.mark.parametrize("stops", [False, True], ids=["to its end", "at a stop id"])
def test_what_is_drafted_leaves_the_journal_as_it_was(stops):
    """Sampled drafts see each other behind it; their rows are still to be verified."""
    engine = started()
    chunks_of(engine, 3, SEEDED)
    depth = DraftDepth(4, COSTS["cpu"], drafters=(MTP,), exact=4)

    def drafted(params: SamplingParams) -> tuple[int, ...]:
        journal = list(engine.journal)
        drafts = AdaptiveDrafts(engine._live, Sampler(61), PromptLookup(), depth, params)
        found = drafts.propose(journal, 63).ids
        assert journal == list(engine.journal)
        return found

    whole = drafted(attrs.evolve(SEEDED, stop_ids=frozenset()))
    assert len(whole) == 4
    if stops:
        assert drafted(attrs.evolve(SEEDED, stop_ids=frozenset(whole[2:3]))) == whole[:2]
