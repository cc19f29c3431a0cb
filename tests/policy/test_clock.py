"""The clock of a policy that was given none."""

from flashrt.policy.clock import timeless
from flashrt.policy.sessions import SessionRegistry


def test_without_a_clock_nothing_ever_grows_old():
    """Whatever the limit."""
    registry = SessionRegistry(idle_ttl_s=1e-9)
    registry.open("a")
    assert timeless() == timeless()
    assert registry.expire() == []
