"""Where a prefill is cut."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flashrt.policy.cuts import CutRule

RULE = CutRule(64, system_open=(2, 5), turn_end=(3, 4))
# The length is drawn first: lists that Hypothesis grows by itself rarely reach a second cut.
IDS = st.integers(0, 300).flatmap(lambda n: st.lists(st.integers(2, 6), min_size=n, max_size=n))
PROMPTS = st.one_of(IDS, IDS.map(lambda ids: [2, 5, *ids]))


@given(ids=PROMPTS, position=st.integers(0, 300))
def test_a_hit_never_adds_or_moves_a_cut(ids, position):
    """The cuts beyond a position are those of the cold prompt beyond it, whatever was cached."""
    cold = RULE.cuts(ids)
    assert RULE.cuts(ids, position) == tuple(cut for cut in cold if cut > position)


@given(ids=PROMPTS)
def test_cuts_are_the_grid_and_the_end_of_the_system_turn(ids):
    """Rising, inside the prompt, on the grid but for one after the first turn's end."""
    cuts = RULE.cuts(ids)
    assert list(cuts) == sorted(set(cuts))
    off_grid = [cut for cut in cuts if cut % 64]
    assert len(off_grid) <= 1
    for cut in off_grid:
        assert ids[:2] == [2, 5]
        assert ids[cut - 2 : cut] == [3, 4]
    assert {cut for cut in cuts if cut % 64 == 0} >= set(range(64, len(ids), 64))


@given(ids=PROMPTS, more=st.lists(st.integers(2, 6), max_size=200))
def test_a_longer_prompt_keeps_the_cuts_of_the_shorter_one(ids, more):
    """So a capsule at a cut of one prompt is at a cut of every prompt that goes on from it."""
    longer = RULE.cuts([*ids, *more])
    assert set(RULE.cuts(ids)) <= set(longer)


def test_a_prompt_that_ends_with_its_system_turn_has_no_cut_at_its_end():
    """A cut lies inside the prompt; the end is a boundary anyway."""
    assert RULE.cuts([2, 5, 9, 3, 4]) == ()
    assert RULE.cuts([2, 5, 9, 3, 4, 7]) == (5,)


def test_without_the_sequences_there_is_only_the_grid():
    """A template without system turns has none to cut at."""
    assert CutRule(128).cuts([2, 5, 3, 4] * 100) == (128, 256, 384)


@pytest.mark.parametrize("chunk_tokens", [0, -64, 63, 100])
def test_the_grid_is_a_multiple_of_64(chunk_tokens):
    """Anything else would not meet the chunks of the anchored window."""
    with pytest.raises(ValueError, match=f"chunk_tokens is {chunk_tokens}"):
        CutRule(chunk_tokens)
