"""Times to the first id."""

from flashrt.bench.engine import prefill
from tests.bench.engine.subjects import bounds, subject, wishes


def test_cold_prompts_and_appends_are_measured():
    """Every length cold, then more tokens behind the hot state and behind a restored one."""
    options = wishes(context=(70, 130), append=(64,), tail=5, offsets=3, repeat=2)
    assert prefill.window(options) <= subject().engine.info.max_seq

    found = list(prefill.measure(subject(), options, bounds()))

    assert [(f.work, f.context, f.count) for f in found] == [
        ("cold prompt", 70, 2),
        ("cold prompt", 130, 2),
        ("5 more tokens, hot", 64, 3),
        ("5 more tokens, restored", 64, 3),
    ]
    assert all(0 < f.ms <= f.worst_ms for f in found)
    assert found[2].bound_ms == bounds().prompt_ms(5, 64)
    assert found[3].bound_ms > found[2].bound_ms


def test_offsets_are_spread_over_a_chunk(monkeypatch):
    """Each of 64 positions modulo 64 with 64 offsets; four with four."""
    seen = []
    behind = prefill._behind

    def noted(subject, capsule, offset):
        seen.append(offset)
        return behind(subject, capsule, offset)

    monkeypatch.setattr(prefill, "_behind", noted)
    list(prefill.measure(subject(), wishes(context=(), append=(64,), offsets=4), bounds()))

    assert seen[1:] == [0, 16, 32, 48]  # the first one warms up
