"""How far the running request is, and how fast it goes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flashrt.chat.prompt import Prompt
from flashrt.engine.protocol import SamplingParams
from flashrt.fsm.lifecycle import Life
from flashrt.metrics.activity import RATE_WINDOW_S, Activity, Held, Holdings, Hot, Rate, waiting
from flashrt.metrics.record import RequestRecord
from flashrt.policy.turn import Answered, Pinned, Prefilled, Progressed, Turn
from tests.answers import IdAnswer
from tests.policy.turns import Flag, Server, opening, said

STEPS = st.lists(
    st.tuples(st.floats(0.001, 3.0), st.integers(1, 64)), min_size=1, max_size=30
)  # (seconds, tokens), one after the other


def record(**fields) -> RequestRecord:
    return RequestRecord(request_id="r", created=0, enqueued_at=1.0, **fields)


@given(STEPS)
def test_a_speed_is_that_of_the_newest_steps_over_the_time_that_they_took(steps):
    """Whatever ended before the window has no part in it."""
    rate, now, ended = Rate(), 0.0, []
    for seconds, tokens in steps:
        now += seconds
        rate.add(now, tokens, seconds)
        ended.append((now, tokens, seconds))
    newest = [step for step in ended if step[0] >= now - RATE_WINDOW_S]
    expected = sum(s[1] for s in newest) / sum(s[2] for s in newest)
    assert rate.per_s(now) == round(expected, 2)
    assert rate.per_s(now + RATE_WINDOW_S + 0.001) is None


def test_a_server_that_has_done_nothing_has_no_speed():
    """None, and not 0: nobody asked it for anything."""
    assert Rate().per_s(3.0) is None


def test_each_step_counts_what_it_added_over_its_own_time():
    """Blocks of the prompt first, then bursts of the answer; other events take no time away."""
    activity, of = Activity(), record(prompt_ids=tuple(range(100)), started_at=1.0)
    activity.note(of, [Progressed(64)], 2.0, Held())
    activity.note(of, [Prefilled(())], 4.0, Held())
    activity.note(of, [Pinned({"pinned_tokens": 64})], 4.5, Held())
    activity.note(of, [Answered((), (7, 8, 9)), Answered(())], 5.0, Held())
    assert activity.prefill.per_s(5.0) == 25.0  # 100 tokens in 4 seconds
    assert activity.decode.per_s(5.0) == 3.0  # 3 tokens in 1 second


def test_a_prefill_says_how_far_it_is_and_stops_its_clock_at_its_end():
    """Its record says it; nothing counts before the plan is made."""
    activity = Activity()
    of = record(prompt_ids=tuple(range(100)), started_at=1.5)

    fresh = activity.running(of, Life.PREFILL, leaving=False, now=2.5)
    of.prefix_action, of.cached_tokens, of.processed_tokens = "append", 10, 64
    under_way = activity.running(of, Life.PREFILL, leaving=True, now=2.5)
    of.prefilled_at = 3.0
    done = activity.running(of, Life.DECODE, leaving=False, now=9.0)

    assert fresh["prefill"]["processed_tokens"] == 0
    assert under_way["prefill"] == {
        "total_tokens": 100,
        "cached_tokens": 10,
        "processed_tokens": 64,
        "ms": 1000.0,
    }
    assert under_way["leaving"] is True
    assert (done["prefill"]["ms"], done["age_ms"], done["state"]) == (1500.0, 8000.0, "DECODE")


def test_what_is_held_is_what_the_newest_step_left():
    """Also nothing."""
    activity, hot = Activity(), Hot("s1", "n", 5)
    activity.note(record(), [], 1.0, Held(hot, {"cut": 1}))
    assert activity.held.hot == hot
    activity.note(record(), [], 2.0, Held())
    assert activity.held.hot is None


def test_a_waiting_request_has_an_age_and_a_length():
    """And none of its ids."""
    shown = waiting(record(prompt_ids=(1, 2, 3)), Life.QUEUED, now=1.25)
    assert shown == {"request_id": "r", "state": "QUEUED", "age_ms": 250.0, "prompt_tokens": 3}


@pytest.mark.parametrize("budget", [0, 3000, 10**9])
def test_holdings_are_told_as_they_are_behind_every_step(budget: int):
    """Turns that go on, fork, come back and are pinned, with room for some states, none or all:
    no step hides what has changed, those of an answer among them, nor does the end of a turn."""
    server = Server(budget)
    holdings, answered = Holdings(server.policy), 0
    start = opening(*range(40))
    for number, pin in enumerate((None, True, None, False, None, None)):
        prompt = start + said(*(at % 60 for at in range(number % 3, 30 + 20 * (number % 4))))
        turn = Turn(
            prompt=Prompt.from_ids(prompt),
            sampling=SamplingParams(),
            answer=IdAnswer(5),
            cancel=Flag(),
            pin_prefix=pin,
        )
        for events in server.loop.run(turn, server.performer.perform):
            if events:
                told = holdings.behind(events)
                assert told == (server.policy.store.report(), Held.by(server.policy))
                answered += any(isinstance(event, Answered) for event in events)
        # What was done behind the last event is told without one.
        assert holdings.behind(()) == (server.policy.store.report(), Held.by(server.policy))
    assert answered >= 30
