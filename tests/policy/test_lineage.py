"""How a state was built, in spans."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from flashrt.policy.lineage import cut, end, with_block, with_decoded


def built(steps):
    lineage, position = (), 0
    for decoded, count in steps:
        position += count
        lineage = with_decoded(lineage, position) if decoded else with_block(lineage, position)
    return lineage


STEPS = st.lists(st.tuples(st.booleans(), st.integers(1, 9)), min_size=1, max_size=8)


@given(steps=STEPS)
def test_spans_follow_each_other_and_reach_the_end(steps):
    """Rising stops, no two decoded spans side by side, the end is the sum."""
    lineage = built(steps)
    stops = [span.stop for span in lineage]
    assert stops == sorted(set(stops))
    assert end(lineage) == sum(count for _, count in steps)
    assert not any(a.decoded and b.decoded for a, b in pairwise(lineage))


@given(steps=STEPS, data=st.data())
def test_a_cut_keeps_what_lies_below_it_and_the_block_that_it_cuts(steps, data):
    """A cut block is processed whole and then rolled back: its other ids are still named."""
    lineage = built(steps)
    ids = list(range(100, 100 + end(lineage)))
    length = data.draw(st.integers(1, end(lineage)))
    shorter = cut(lineage, length, ids)
    assert end(shorter) == length
    whole = next(span for span in lineage if span.stop >= length)
    last = shorter[-1]
    assert last.decoded == whole.decoded
    assert last.beyond == (() if whole.decoded else tuple(ids[length : whole.stop]))
    assert shorter[:-1] == lineage[: len(shorter) - 1]


@given(steps=STEPS, data=st.data())
def test_cutting_twice_is_cutting_once(steps, data):
    """The ids beyond are those of the block as it was processed."""
    lineage = built(steps)
    ids = list(range(end(lineage)))
    middle = data.draw(st.integers(1, end(lineage)))
    low = data.draw(st.integers(1, middle))
    assert cut(cut(lineage, middle, ids), low, ids[:middle]) == cut(lineage, low, ids)
