"""What the rows of a step are chosen by."""

import attrs
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from flashrt.engine.choices import Choices, best_is_all
from flashrt.engine.hybrid import HybridEngine
from flashrt.engine.protocol import SamplingParams
from flashrt.engine.sampler import Sampler
from tests.engine.contract import fill
from tests.engine.drafted import chunks_of, make_drafted
from tests.engine.models import Shape, ids
from tests.engine.walking import GREEDY, WAYS

PADDED = Shape(layers=2, interval=2, vocab=9)
"""So few ids that the best is often one that belongs to no token."""

PLACES = [
    ("cpu", torch.float32),
    ("cpu", torch.bfloat16),
    pytest.param(("cuda", torch.bfloat16), marks=pytest.mark.gpu),
    pytest.param(("cuda", torch.float32), marks=pytest.mark.gpu),
]


@pytest.fixture(scope="module", params=PLACES, ids=str)
def engine(request: pytest.FixtureRequest) -> HybridEngine:
    """With three ids that are never chosen."""
    device, dtype = request.param
    return make_drafted(PADDED, dtype=dtype, device=device, max_seq=256, sampleable=6)


def text_of(engine: HybridEngine, params: SamplingParams, constraint=None) -> tuple[int, ...]:
    """What it says behind the same prompt."""
    engine.reset()
    fill(engine, ids(20, PADDED.vocab))
    said = chunks_of(engine, 40, params, constraint)
    return tuple(id_ for chunk in said for id_ in chunk.tokens)[:40]


@pytest.mark.parametrize("way", ["greedy", "drafted"])
def test_the_best_ids_are_those_of_all_scores(engine: HybridEngine, way: str):
    """Step by step and over drafts, beside the choice that looks at every score: a constraint that
    allows all goes that way, and so does a wish for log-probabilities."""
    params = {**WAYS, "greedy": GREEDY}[way]

    found = text_of(engine, params)

    assert found == text_of(engine, params, lambda accepted, draft: [None] * (len(draft) + 1))
    assert found == text_of(engine, attrs.evolve(params, logprobs=0))
    assert max(found) < 6


@pytest.mark.parametrize("way", ["greedy", "drafted"])
def test_a_constraint_has_its_say(engine: HybridEngine, way: str):
    """Ids that it forces are taken, be others likelier."""
    params = {**WAYS, "greedy": GREEDY}[way]
    likely = text_of(engine, params)[0]
    forced = (likely + 1) % 6

    said = text_of(engine, params, lambda accepted, draft: [forced] * (len(draft) + 1))

    assert set(said) == {forced}


@pytest.mark.parametrize(
    ("params", "alone"),
    [
        (SamplingParams(), True),
        (SamplingParams(top_k=5, top_p=0.5), True),
        (SamplingParams(temperature=0.1), False),
        (SamplingParams(logprobs=0), False),
        (SamplingParams(presence_penalty=0.1), False),
        (SamplingParams(repetition_penalty=1.1), False),
        (SamplingParams(logit_bias={1: 1.0}), False),
    ],
    ids=str,
)
def test_the_best_id_is_all_where_nothing_else_has_a_say(params: SamplingParams, alone: bool):
    """No noise, journal, bias, or wish to know more."""
    assert best_is_all(params) is alone


@given(st.lists(st.integers(-3, 3), min_size=9, max_size=9), st.integers(1, 9))
def test_a_best_id_is_chosen_without_scores(scores, sampleable):
    """The sampler's own choice of the row, and nothing is told of it."""
    row, sampler = torch.tensor(scores, dtype=torch.float32), Sampler(9, sampleable)
    best = row[:sampleable].argmax().reshape(1).numpy()

    choices = Choices(sampler, GREEDY, None, [(best, best.astype(float))])

    assert choices.of(0, (), None) == sampler.choose(row, GREEDY, journal=(), allowed=None)
    assert choices.told([int(best[0])]) == ()


def test_scores_tell_what_was_asked_for():
    """Of the rows that were chosen from, in order."""
    sampler, params = Sampler(9), SamplingParams(logprobs=2)
    logits = torch.arange(18.0).reshape(2, 9)

    told = Choices(sampler, params, logits, [None, None]).told([8, 3])

    assert told == (sampler.logprobs(logits[0], 8, 2), sampler.logprobs(logits[1], 3, 2))
