"""Times of capsules."""

from flashrt.bench.engine import restore
from tests.bench.engine.subjects import bounds, subject, wishes


def test_both_ways_are_measured_whole():
    """At each length all bytes of the capsule are copied, and the rate is of them."""
    options = wishes(context=(70, 200), repeat=3)
    assert restore.window(options) <= subject().engine.info.max_seq

    found = list(restore.measure(subject(), options, bounds()))

    assert [(f.work, f.context, f.count) for f in found] == [
        (work, length, 3) for length in (70, 200) for work in ("restore", "snapshot")
    ]
    size = subject().capsule_of(200).capsule_bytes
    assert found[2].more["mb"] == found[3].more["mb"] == size / 1e6
    assert found[2].bound_ms == size / 1e6  # at a byte a nanosecond
    assert all(f.more["best_gb_per_s"] * f.ms >= f.more["mb"] * 0.999 for f in found)
