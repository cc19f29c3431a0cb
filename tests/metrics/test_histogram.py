"""A cumulative histogram, compared with the Prometheus client's own."""

import math

import prometheus_client
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flashrt.metrics.histogram import Histogram

BOUNDS = (0.5, 1.0, 2.0)
values = st.lists(st.sampled_from(BOUNDS) | st.floats(0, 10), max_size=20)


def peer_of(observed):
    """The samples of the client library's histogram after the same values."""
    peer = prometheus_client.Histogram("a", "b", buckets=BOUNDS, registry=None)
    for value in observed:
        peer.observe(value)
    (family,) = peer.collect()
    return family.samples


@given(values)
def test_it_counts_as_the_client_library_does(observed):
    """Cumulative, a bound belongs to its own bucket, and the last one has everything."""
    ours = Histogram(BOUNDS)
    for value in observed:
        ours.observe(value)

    samples = peer_of(observed)
    buckets = [(float(s.labels["le"]), s.value) for s in samples if s.name == "a_bucket"]
    assert list(ours.cumulative()) == buckets
    assert [s.value for s in samples if s.name == "a_count"] == [ours.count]
    assert [s.value for s in samples if s.name == "a_sum"] == [pytest.approx(ours.total)]


def test_two_histograms_share_nothing():
    """Each has its own counts."""
    one, other = Histogram(BOUNDS), Histogram(BOUNDS)
    one.observe(1.0)

    assert (one.count, other.count) == (1, 0)
    assert list(other.cumulative())[-1] == (math.inf, 0)
