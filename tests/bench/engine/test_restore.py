"""Times of capsules."""

import pytest

from flashrt.bench.engine import restore
from tests.bench.engine.subjects import bounds, subject, wishes

HERE = ("restore", "10 more tokens, restored", "snapshot")
HOST = ("restore from the host", "the same, without room here", "10 more tokens, from the host")


@pytest.mark.parametrize(
    ("sources", "works"),
    [
        (("device", "host"), (*HERE, *HOST)),
        pytest.param(("device",), HERE, marks=pytest.mark.slow),
        pytest.param(("host",), HOST, marks=pytest.mark.slow),
    ],
    ids=["both", "device", "host"],
)
def test_all_ways_are_measured_whole(sources, works):
    """At each length all bytes of the capsule are copied, and the rate is of them."""
    options = wishes(context=(70, 200), repeat=3, sources=sources)
    assert restore.window(options) <= subject().engine.info.max_seq

    found = list(restore.measure(subject(), options, bounds()))

    assert [(f.work, f.context, f.count) for f in found] == [
        (work, length, 3) for length in (70, 200) for work in works
    ]
    size = subject().capsule_of(200).capsule_bytes
    whole = [f for f in found[len(works) :] if "mb" in f.more]
    assert [f.more["mb"] for f in whole] == [size / 1e6] * 2 * len(sources)
    assert all(f.more["best_gb_per_s"] * f.ms >= f.more["mb"] * 0.999 for f in whole)
    bound = {f.work: f.bound_ms for f in found[len(works) :]}
    if "device" in sources:  # at a byte a nanosecond
        assert bound["restore"] == bound["snapshot"] == size / 1e6
        assert bound["10 more tokens, restored"] == size / 1e6 + bounds().prompt_ms(10, 200)
    if "host" in sources:
        over = bound["the same, without room here"]
        assert bound["restore from the host"] == over + size / 1e6
        assert bound["10 more tokens, from the host"] == over + bounds().prompt_ms(10, 200)
