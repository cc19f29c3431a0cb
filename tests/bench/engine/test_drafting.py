"""Imposed acceptance."""

import functools
import itertools

import attrs
import pytest

from flashrt.bench.engine.drafting import Oracle, Overwritten
from flashrt.bench.engine.subject import GREEDY
from flashrt.engine.protocol import EngineMisuse
from flashrt.engine.speculate import Draft, Drafting, NoDrafts
from tests.bench.engine.subjects import subject

PROMPT = tuple(range(70))


def decoded(script: Drafting, steps: int) -> tuple[list[int], list[int]]:
    """The journal behind a prompt, and the ids of each step."""
    engine = subject().engine
    engine.reset()
    subject().fill(PROMPT)
    engine.script = script
    try:
        counts = [len(c.tokens) for c in itertools.islice(engine.decode(GREEDY), steps)]
    finally:
        engine.script = NoDrafts()
    return list(engine.journal), counts


@functools.cache
def known_text() -> list[int]:
    """The prompt, and what a run without drafts makes of it."""
    return decoded(NoDrafts(), 40)[0]


@attrs.define
class Counted:
    """Drafts as another does, and counts how often it was asked."""

    drafting: Drafting
    asked: int = 0

    def propose(self, journal: list[int], room: int) -> Draft:
        self.asked += 1
        return self.drafting.propose(journal, room)

    def observe(self, draft: Draft, tokens: object) -> None:
        raise AssertionError("it drafts as many every time, whatever comes of it")


@pytest.mark.parametrize(("count", "right"), [(3, 0), (7, 5)])
def test_so_many_drafts_are_right_in_every_step(count, right):
    """But the first, which drafts nothing; and the text is that of a run without drafts."""
    text = known_text()

    journal, counts = decoded(Oracle(text, count, right), 5)

    assert counts == [1, *[right + 1] * 4]
    assert journal == text[: len(journal)]


def test_the_layer_drafts_and_the_oracle_has_the_say():
    """The work is done in every step, and none of its ids is used."""
    text = known_text()
    layer = Counted(subject().engine.layer_drafts(3))

    journal, counts = decoded(Overwritten(layer, Oracle(text, 3, 2)), 6)

    assert layer.asked == 5
    assert counts == [1, *[3] * 5]
    assert journal == text[: len(journal)]


def test_the_layer_drafts_as_many_as_asked():
    """Whatever came of its drafts before."""
    text = known_text()
    decoded(NoDrafts(), 1)

    draft = subject().engine.layer_drafts(3).propose(text[:71], 10)

    assert (len(draft.ids), draft.drafter) == (3, "mtp")


def test_another_text_is_noticed():
    """A figure for an acceptance that did not come about would be false."""
    text = known_text()
    other = [*PROMPT, *(id_ + 1 for id_ in text[len(PROMPT) :])]

    with pytest.raises(EngineMisuse, match="0 of 3 drafted ids were right, not 2"):
        decoded(Oracle(other, 3, 2), 5)


def test_a_text_that_is_too_short_is_noticed():
    """No step drafts less than was imposed."""
    with pytest.raises(EngineMisuse, match="the text ends there"):
        Oracle(PROMPT, 3, 2).propose([*PROMPT], 10)
