"""Which states of a conversation stay."""

import attrs
import pytest

from flashrt.policy.spacing import EVERY_CUTS, NEWEST_TURNS, Kind, keeps, saves_cut, thin


@attrs.frozen
class State:
    kind: Kind
    turn: int
    pinned: bool = False


def grown(turns):
    """What is left of both boundaries of every turn, thinned after each."""
    kept = [State(Kind.SYSTEM, 1)]
    for turn in range(1, turns + 1):
        kept += [State(Kind.PROMPT, turn), State(Kind.COMMITTED, turn)]
        gone = list(thin(kept, turn))
        kept = [state for state in kept if state not in gone]
    return kept


@pytest.mark.parametrize("turns", [1, 7, 8, 9, 17, 40, 130, 200])
def test_an_edit_finds_a_state_just_before_it_or_at_half_the_way(turns):
    """Whatever turn is edited: within the newest turns the one before it, else no earlier than
    half of it."""
    kept = grown(turns)
    for edited in range(2, turns + 1):
        before = [s.turn for s in kept if s.kind is Kind.COMMITTED and s.turn < edited]
        reach = max(before)
        newest = turns - edited < NEWEST_TURNS - 1
        assert reach >= (edited - 1 if newest else edited / 2)


@pytest.mark.parametrize("turns", [1, 8, 9, 100])
def test_the_newest_turns_have_both_boundaries_and_the_system_turn_stays(turns):
    """A regenerated answer starts before its generation prompt."""
    kept = grown(turns)
    assert State(Kind.SYSTEM, 1) in kept
    for turn in range(max(1, turns - NEWEST_TURNS + 1), turns + 1):
        assert State(Kind.PROMPT, turn) in kept
        assert State(Kind.COMMITTED, turn) in kept


def test_what_stays_grows_with_the_logarithm():
    """A thousand turns keep little more than a hundred do."""
    assert len(grown(1000)) <= 2 * NEWEST_TURNS + 1 + 10


def test_a_pinned_state_is_never_thinned():
    """Somebody asked for it."""
    assert not list(thin([State(Kind.PROMPT, 3, pinned=True)], 100))
    assert list(thin([State(Kind.PROMPT, 3)], 100))
    assert not keeps(Kind.CUT, 3, 100)


def test_the_end_of_the_system_turn_stays_whichever_turn_has_saved_it():
    """A budget that was full at first lets a later turn save it."""
    assert keeps(Kind.SYSTEM, 3, 100)


def test_every_eighth_cut_of_a_long_prefill_is_kept():
    """Counted over all cuts of the prompt, so that a retry keeps the same ones."""
    kept = [index for index in range(40) if saves_cut(index)]
    assert kept == [EVERY_CUTS * i - 1 for i in range(1, 6)]
