"""Estimates of the time to a first token."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flashrt.policy.costs import CostModel
from flashrt.policy.tiers import Tier

MEASURED = st.lists(
    st.tuples(
        st.booleans(),
        st.integers(-5, 10**6),
        st.one_of(st.floats(0, 10**5), st.just(math.nan), st.just(math.inf), st.just(-1.0)),
    ),
    max_size=30,
)


def fed(measured):
    costs = CostModel()
    for is_prefill, amount, ms in measured:
        (costs.prefilled if is_prefill else costs.restored)(amount, ms)
    return costs


@given(measured=MEASURED, less=st.integers(0, 10**6), more=st.integers(1, 10**6))
def test_more_never_takes_less(measured, less, more):
    """Whatever was measured, estimates are finite, not negative, and rise with the size."""
    costs = fed(measured)
    for estimate in (costs.prefill_ms, costs.restore_ms):
        assert 0 <= estimate(less) < estimate(less + more) < math.inf
    assert costs.prefill_ms(0) == costs.restore_ms(0) == 0


def test_estimates_come_to_what_is_measured_again_and_again():
    """A GPU: 20 ms a call and 0.05 ms a token; a capsule of 150 MiB in a third of a millisecond."""
    costs = CostModel()
    for _ in range(200):
        costs.prefilled(16, 20 + 16 * 0.05)
        costs.prefilled(4096, 20 + 4096 * 0.05)
        costs.restored(150 << 20, 0.3)
    assert costs.prefill_ms(1000) == pytest.approx(70, rel=0.02)
    assert costs.restore_ms(300 << 20) == pytest.approx(0.6, rel=0.02)


def test_one_hiccup_is_no_new_speed():
    """A machine that slept for a minute is not slow for ever."""
    costs = CostModel()
    before = costs.restore_ms(1 << 20)
    costs.restored(1 << 20, 60_000)
    assert costs.restore_ms(1 << 20) < 4 * before


def test_a_machine_that_is_faster_than_the_first_guess_is_believed():
    """Even where a whole call takes less than one part of the estimate says."""
    costs = CostModel()
    for _ in range(500):
        costs.prefilled(100, 4.0)
        costs.prefilled(20, 3.0)
    assert costs.prefill_ms(100) == pytest.approx(4.0, rel=0.1)
    assert costs.prefill_ms(20) == pytest.approx(3.0, rel=0.1)


@pytest.mark.parametrize("tier", Tier)
def test_each_tier_has_its_own_rate(tier):
    """What one of them takes says nothing about the others."""
    costs, fresh = CostModel(), CostModel()
    for _ in range(50):
        costs.restored(1 << 20, 5.0, tier)
    assert costs.restore_ms(1 << 20, tier) == pytest.approx(5.0, rel=0.05)
    for other in set(Tier) - {tier}:
        assert costs.restore_ms(1 << 20, other) == fresh.restore_ms(1 << 20, other)
