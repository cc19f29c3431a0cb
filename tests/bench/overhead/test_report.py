"""What a run came to."""

import pytest

from flashrt.bench.overhead.figures import Pair, Spread
from flashrt.bench.overhead.neighbours import Health
from flashrt.bench.overhead.report import Report


def report(streams_ms=1.0, bodies_ms=1.0, ratio=1.0):
    """A run without streams of its own."""
    spreads = [Spread(3, 0.5, p99_ms, 99.0) for p99_ms in (1.0, streams_ms, bodies_ms)]
    return Report(2, {}, Health(*spreads, running=6, bodies_posted=2), Pair(ratio, 1.0))


@pytest.mark.parametrize(
    ("wish", "missed"),
    [
        ({}, []),
        ({"streams_ms": 50.0}, ["/health beside 8 streams"]),
        ({"bodies_ms": 50.0}, ["/health beside them and bodies"]),
        ({"ratio": 1.2}, ["first token behind a reader"]),
    ],
)
def test_a_goal_that_is_missed_is_said_to_be(wish, missed):
    """In the table and in the JSON, and only that one."""
    got = report(**wish)
    lines = [line for line in got.lines() if line.startswith("MISSED")]
    assert len(lines) == len(missed)
    assert all(goal in line for goal, line in zip(missed, lines, strict=True))
    assert sum(not met for met in got.as_json()["goals"].values()) == len(missed)
