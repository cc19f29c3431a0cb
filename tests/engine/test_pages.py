"""Pages are given out once, and all that fits by number fits."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flashrt.engine.pages import Pages

RUNS = st.lists(st.tuples(st.integers(1, 3), st.integers(0, 9)), max_size=4)
STEPS = st.lists(st.tuples(st.booleans(), st.integers(0, 12), st.randoms()), max_size=40)


def apart(gaps_and_lengths):
    """Runs with at least a page between them."""
    runs, at = [], 0
    for gap, length in gaps_and_lengths:
        runs.append(range(at + gap, at + gap + length))
        at = runs[-1].stop
    return runs


def numbers(runs):
    return [page for run in runs for page in run]


@given(RUNS, STEPS)
def test_no_page_is_given_out_twice_and_all_come_back(shape, steps):
    """Whatever is taken and given back in whatever order; and then they lie as they lay."""
    runs = apart(shape)
    pages, free, held = Pages(runs), set(numbers(runs)), []
    for gives, count, dice in steps:
        if gives and held:
            run = held.pop(dice.randrange(len(held)))
            pages.give(run)
            free |= set(run)
        elif count > len(free):
            with pytest.raises(MemoryError):
                pages.take(count)
        else:
            taken = pages.take(count)
            assert len(numbers(taken)) == len(set(numbers(taken))) == count
            assert set(numbers(taken)) <= free
            free -= set(numbers(taken))
            held += taken
        assert pages.count == len(free)
    for run in held:
        pages.give(run)
    whole = [run for run in runs if run]
    assert sorted(map(len, whole), reverse=True) == [len(pages.take(n)[0]) for n in lengths(whole)]
    assert pages.count == 0


def lengths(runs):
    return sorted(map(len, runs), reverse=True)


@given(st.integers(1, 9), st.lists(st.integers(1, 9), min_size=1, max_size=5))
def test_what_one_run_holds_is_not_cut(count, free):
    """The shortest that holds it is taken: the long ones are for what is long."""
    runs = apart((1, length) for length in free)
    pages = Pages(runs)
    enough = [length for length in free if length >= count]
    if not enough:
        return
    (taken,) = pages.take(count)
    assert len(next(run for run in runs if taken.start in run)) == min(enough)


def test_pages_that_are_free_cannot_be_given():
    """Somebody would hold what another is given."""
    pages = Pages([range(4, 9)])
    for run in (range(4, 5), range(8, 12), range(2, 5), range(20)):
        with pytest.raises(ValueError, match="free already"):
            pages.give(run)
    assert pages.count == 5
