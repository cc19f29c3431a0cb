"""Times of decoding."""

import pytest

from flashrt.bench.engine import decode
from tests.bench.engine.subjects import bounds, subject, wishes


def test_every_way_of_decoding_is_measured_at_every_context():
    """Without drafts, verifying more rows, and with the MTP layer, each with its bound."""
    options = wishes(context=(70, 130), repeat=1)
    assert decode.window(options) <= subject().engine.info.max_seq

    found = list(decode.measure(subject(), options, bounds()))

    ways = ["decode, no drafts", "verify, 4 rows", "step with MTP, 2 of 3 right"]
    assert [(f.work, f.context) for f in found] == [(w, c) for c in (70, 130) for w in ways]
    assert all(0 < f.ms <= f.worst_ms for f in found)
    assert found[0].bound_ms == bounds().step_ms(1, 70)
    assert found[2].bound_ms == bounds().step_ms(4, 70, drafts=3)


def test_steps_with_two_of_three_right_give_three_tokens_each():
    """So a token takes a third of a step."""
    options = wishes(repeat=1)
    *_, drafted = decode.measure(subject(), options, bounds())

    assert drafted.count == 1
    assert drafted.more["ms_per_token"] == pytest.approx(drafted.ms / 3)
    assert drafted.more["tokens_per_s"] == pytest.approx(3e3 / drafted.ms)


def test_verifying_is_compared_with_one_row():
    """Of the same run."""
    plain, verify, _ = decode.measure(subject(), wishes(), bounds())

    assert verify.more["against_one_row"] == pytest.approx(verify.ms / plain.ms)
