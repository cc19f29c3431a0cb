"""Depth: right drafts are followed, wrong ones given up and tried again."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flashrt.engine.drafting.depth import LOOKUP, MTP, Choice, Costs, DraftDepth

COSTS = Costs(row=0.01, group=0.1, mtp=0.07)
PADDED = Costs(row=0.0, group=1.0, mtp=0.1)
"""Rows cost nothing up to the 16th, and the 17th as much as the first 16."""


def walked(depth, rights, available=0):
    """The choices of a walk in which the first `right` ids of each draft are right."""
    choices = []
    for right in rights:
        choice = depth.next(available)
        depth.observe(choice, min(right, choice.count))
        choices.append(choice)
    return choices


def counts(choices):
    return [choice.count for choice in choices]


@pytest.mark.parametrize("most", [1, 3, 8])
def test_right_drafts_reach_the_maximum_within_a_few_steps(most):
    """An oracle is trusted by its tenth step, and stays trusted."""
    reached = counts(walked(DraftDepth(most, COSTS, drafters=(MTP,)), [63] * 40))

    assert set(reached[10:]) == {most}
    assert max(reached) == most


def test_right_quotations_reach_63_ids():
    """Lookup goes beyond the maximum of the MTP layer: its ids cost no pass."""
    choices = walked(DraftDepth(8, COSTS), [63] * 30, available=63)

    assert set(choices[15:]) == {Choice(LOOKUP, 63)}


def test_wrong_drafts_end_drafting_but_for_probes():
    """An adversary costs one id every 16 steps."""
    late = counts(walked(DraftDepth(8, COSTS, drafters=(MTP,)), [0] * 200))[60:]

    assert set(late) == {0, 1}
    assert sum(late) == pytest.approx(len(late) / 16, abs=1)


@pytest.mark.parametrize("drafter", [MTP, LOOKUP])
@pytest.mark.parametrize("bad_steps", [20, 500])
def test_a_bad_stretch_is_recovered_from(drafter, bad_steps):
    """However long it was, right drafts are back at the maximum within 40 steps."""
    depth = DraftDepth(8, COSTS, drafters=(drafter,))
    walked(depth, [0] * bad_steps, available=8)

    assert counts(walked(depth, [63] * 40, available=8))[-1] == 8


def test_later_positions_are_tried_again_when_the_first_is_right():
    """A stretch in which only the first id was right does not keep the depth at 1."""
    depth = DraftDepth(8, COSTS, drafters=(MTP,))
    assert sum(counts(walked(depth, [1] * 60)[-20:])) <= 20 * 3

    assert walked(depth, [63] * 20)[-1].count == 8


def test_the_drafter_that_is_right_drafts():
    """Wrong quotations give way to a right MTP layer, and that to a quotation that reaches further.

    What lookup would have been worth is seen in every step, so it takes over at once.
    """
    depth, choices = DraftDepth(8, COSTS), []
    for step in range(120):
        choice, ids = depth.next(63), range(63)
        right = choice.count if choice.drafter == MTP or step >= 60 else 0
        depth.observe(choice, right)
        if choice.drafter != LOOKUP:
            depth.watch([-1] * 63 if step < 60 else ids, ids[: right + 1])
        choices.append(choice)

    assert set(choices[30:60]) == {Choice(MTP, 8)}
    assert {choice.drafter for choice in choices[66:]} == {LOOKUP}


def test_lookup_is_learned_from_in_steps_without_drafts():
    """Steps of one id show whether the first proposed id was right; then lookup drafts again."""
    depth = DraftDepth(8, COSTS, drafters=(LOOKUP,))
    walked(depth, [0] * 100, available=63)
    quiet = DraftDepth(8, COSTS, drafters=(LOOKUP,))
    walked(quiet, [0] * 100, available=63)

    depth.watch([5, 6], [5])

    assert depth.next(63).count > 1 >= quiet.next(63).count
    depth.watch([], [5])
    DraftDepth(8, COSTS, drafters=(MTP,)).watch([5], [5])


def test_a_drafter_that_could_do_no_better_is_not_probed():
    """Beside 64 ids a step, a probe of the MTP layer could only lose."""
    choices = walked(DraftDepth(8, COSTS), [63] * 200, available=63)

    assert MTP not in {choice.drafter for choice in choices[20:]}


def test_a_group_of_rows_is_filled_before_the_next_is_begun():
    """Where rows are free up to the 16th, a quotation has 15 ids, or fills the groups it pays."""
    dear = DraftDepth(8, PADDED, drafters=(LOOKUP,))
    fair = DraftDepth(8, Costs(row=0.0, group=0.3, mtp=0.1), drafters=(LOOKUP,))

    assert set(counts(walked(dear, [63] * 40, available=63))) == {15}
    assert set(counts(walked(fair, [63] * 40, available=63))) == {15, 31, 47, 63}


def test_a_dearer_pass_is_asked_less_often():
    """With the same acceptance, fewer ids are drafted where each costs more."""

    def mean(mtp):
        depth = DraftDepth(8, Costs(0.01, 0.1, mtp), drafters=(MTP,))
        return sum(counts(walked(depth, itertools.islice(itertools.cycle([2, 0, 3, 1]), 200))))

    assert mean(0.02) > mean(0.1) > mean(0.6)


@given(
    most=st.integers(0, 63),
    exact=st.none() | st.integers(0, 63),
    drafters=st.sampled_from([(), (MTP,), (LOOKUP,), (MTP, LOOKUP)]),
    steps=st.lists(st.tuples(st.integers(0, 70), st.integers(0, 63)), max_size=60),
)
def test_no_choice_leaves_its_bounds(most, exact, drafters, steps):
    """MTP within the maximum, lookup within what there is; nobody drafts where 0 was said."""
    depth, again = (DraftDepth(most, COSTS, drafters=drafters, exact=exact) for _ in range(2))
    for available, right in steps:
        choice = depth.next(available)
        assert choice == again.next(available), "the same observations, the same choice"
        room = {MTP: most, LOOKUP: min(available, 63), "": 0}[choice.drafter]
        assert (choice.count > 0) == (choice.drafter in drafters and choice.drafter != "")
        assert choice.count <= room
        if most == 0 or exact == 0:
            assert choice == Choice()
        if exact is not None:
            assert choice.count <= min(exact, most)
        depth.observe(choice, min(right, choice.count))
        again.observe(choice, min(right, choice.count))


@pytest.mark.parametrize(("exact", "used"), [(1, 1), (3, 3), (8, 8), (63, 8)])
def test_an_exact_wish_is_drafted_in_every_step_whatever_comes_of_it(exact, used):
    """Not by merit: wrong drafts change nothing, and the maximum still holds."""
    depth = DraftDepth(8, COSTS, drafters=(MTP,), exact=exact)

    assert counts(walked(depth, [0] * 50)) == [used] * 50


def test_an_exact_wish_takes_what_lookup_has():
    """Lookup cannot make up what the journal does not say."""
    depth = DraftDepth(8, COSTS, drafters=(LOOKUP,), exact=5)

    assert [depth.next(available) for available in (0, 2, 9)] == [
        Choice(),
        Choice(LOOKUP, 2),
        Choice(LOOKUP, 5),
    ]


def test_an_exact_wish_has_the_maximum_for_lookup_too():
    """Only what acceptance chooses may go beyond the maximum; a wish is clipped."""
    depth = DraftDepth(3, COSTS, drafters=(LOOKUP,), exact=9)

    assert depth.next(20) == Choice(LOOKUP, 3)


def test_more_accepted_than_drafted_is_a_bug_of_the_caller():
    """An estimate above 1 would draft for ever."""
    with pytest.raises(AssertionError, match="3 accepted"):
        DraftDepth(8, COSTS).observe(Choice(MTP, 2), 3)
