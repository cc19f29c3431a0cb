"""What is said of samples."""

from hypothesis import given
from hypothesis import strategies as st

from flashrt.bench.overhead.figures import Pair, Spread, percentile

TIMES = st.lists(st.floats(0, 1e6), min_size=1, max_size=300)


@given(TIMES, st.floats(0.01, 1))
def test_a_percentile_is_the_smallest_sample_that_the_share_does_not_pass(samples, share):
    """Enough samples are at most as large, and with the next smaller one there would be too few."""
    found = percentile(samples, share)
    assert found in samples
    assert sum(sample <= found for sample in samples) >= share * len(samples)
    assert sum(sample < found for sample in samples) < share * len(samples)


@given(TIMES)
def test_a_spread_is_in_order(samples):
    """Middle, slow end, worst."""
    spread = Spread.of(samples)
    assert spread.count == len(samples)
    assert spread.p50_ms <= spread.p99_ms <= spread.max_ms


def test_a_pair_says_how_many_times_and_how_much_more():
    """Of medians; against nothing there is no ratio."""
    pair = Pair.of([1.0, 3.0, 100.0], [2.0])
    assert (pair.ours_ms, pair.other_ms, pair.ratio, pair.extra_ms) == (3.0, 2.0, 1.5, 1.0)
    assert Pair.of([1.0], [0.0]).ratio is None
