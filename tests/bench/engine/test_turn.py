"""Whole turns over HTTP."""

import json

import pytest

from flashrt.bench.engine.conversation import Answer
from flashrt.bench.engine.turn import Turn
from flashrt.bench.overhead.clocked import Span
from flashrt.bench.overhead.heard import Heard
from flashrt.cli import main
from tests.bench.engine.subjects import bounds

RECORD = {"cached_tokens": 100, "new_prefill_tokens": 10, "decode_steps": 3}
HEARD = Heard(sent_at=1.0, head_at=1.01, at=[1.01, 1.20, 1.30])
"""It opens, the call begins, and it is complete."""

STEPS = (
    *(Span(0.5, 0.6), Span(1.02, 1.12), Span(1.14, 1.19)),
    *(Span(1.21, 1.24), Span(1.25, 1.28), Span(1.31, 1.35)),
)
"""A step of another turn; reading the prompt; three of the answer; one that saves the turn."""

TURN = Turn(HEARD, Answer({}, 110, 3, RECORD), STEPS)


def test_the_servers_share_is_what_no_step_took():
    """Of the whole turn, of the way to the first piece, of the tokens behind it, and of the end;
    what is done behind that counts for none of them."""
    assert TURN.ms == pytest.approx(300)
    assert TURN.engine_ms == pytest.approx(100 + 50 + 30 + 30)
    assert TURN.first_ms == pytest.approx(200)
    assert TURN.first_engine_ms == pytest.approx(150)
    assert (TURN.later_ms, TURN.later_engine_ms) == pytest.approx((80, 60))
    assert TURN.later_tokens == pytest.approx(2)
    assert TURN.end_ms == pytest.approx(20)


def test_a_turns_bound_is_its_new_tokens_and_its_steps():
    """What is cached is not read again; the first id comes with the prompt."""
    want = bounds().prompt_ms(10, 100) + 2 * bounds().step_ms(1, 110)

    assert TURN.bound_ms(bounds()) == want


@pytest.mark.slow
@pytest.mark.parametrize("subject", [(), ("--shape", "tiny-moe")], ids=["demo", "random"])
def test_a_conversation_with_a_real_server_is_measured(subject, tmp_path, capsys):
    """On the demo and on random weights: every turn is warm, ends with a call, and is captured in
    no request. Ten seconds."""
    file = tmp_path / "turn.json"
    asked = ("turn", *subject, "--device", "cpu", "--context", "600", "--repeat", "2")

    assert main(["bench", *asked, "--json", str(file)]) == 0

    written = json.loads(file.read_text())
    whole, own, first, own_first, rendered, queued, token, own_token, end = written["figures"]
    assert whole["count"] == 2
    assert whole["ms"] > own["ms"] > own_first["ms"] > own_token["ms"] > 0
    assert own_first["ms"] > rendered["ms"] > 0
    assert own_first["ms"] > queued["ms"] > 0
    assert whole["ms"] > first["ms"] > token["ms"] > 0
    assert own["ms"] > end["ms"] > 0
    assert whole["bound_ms"] > 0
    assert 50 < whole["more"]["new"] < 200
    assert written["notes"] == ["graphs captured in requests: 0"]
