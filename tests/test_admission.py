"""Who is let in, and that whoever is not has a record that says why."""

from contextlib import suppress

import pytest

from flashrt.admission import READY_STATUSES, Admission, new_record
from flashrt.chat.request import CacheHints
from flashrt.chat.session_call import ListSessions
from flashrt.engine.fake import FakeEngine
from flashrt.errors import PromptTooLong, QueueFull, Refused, Unavailable
from flashrt.fsm.lifecycle import Life
from flashrt.fsm.server import ServerEvent, ServerState
from flashrt.items import SessionItem
from flashrt.metrics.ledger import Ledger
from flashrt.metrics.record import RequestRecord, kind_of
from flashrt.policy.auto_prefix import AutoPrefixPolicy
from flashrt.policy.cuts import CutRule
from flashrt.policy.limits import Limits
from flashrt.policy.session_calls import SessionWork
from flashrt.policy.steps import Performer
from flashrt.policy.turn_loop import TurnLoop
from flashrt.worker import EngineWorker


class Gate:
    """An admission with a worker that nobody runs."""

    def __init__(self, *events, **limits):
        self.ledger = Ledger()
        turns = TurnLoop(AutoPrefixPolicy(max_seq=99), CutRule(64))
        worker = EngineWorker(Performer(FakeEngine()), turns, max_queue_depth=8, ledger=self.ledger)
        bounds = {"max_seq": 99, "max_output_tokens": 9, "max_queue_depth": 8, **limits}
        self.admission = Admission(limits=Limits(**bounds), worker=worker, ledger=self.ledger)
        for event in (ServerEvent.LOADED, *events):
            self.admission.state.fire(event)

    def admit(self, known=True, tokens=0, waiter="w"):
        work = SessionWork("a", ListSessions(CacheHints(), 1))
        item = SessionItem(work, new_record("list"), waiter)
        with suppress(Refused):
            self.admission.admit(item, lambda: known, tokens)
        return item


async def test_who_is_admitted_waits():
    """In the one line, with a record that is still open."""
    gate = Gate()
    item = gate.admit()
    assert item.life.state is Life.QUEUED
    assert not item.record.closed


@pytest.mark.parametrize(
    ("events", "limits", "asked", "kind"),
    [
        ((), {}, {"tokens": 99}, PromptTooLong),
        ((), {"max_queue_depth": 1}, {}, QueueFull),
        ((), {"queue_per_client": 1}, {}, QueueFull),
        ((ServerEvent.DRAIN,), {}, {}, Unavailable),
        ((ServerEvent.SOFT_DRAIN,), {}, {"known": False}, Unavailable),
        ((ServerEvent.SOFT_DRAIN,), {}, {"known": True}, None),
        ((ServerEvent.FAULT,), {}, {}, Unavailable),
    ],
)
async def test_every_refusal_has_its_record(events, limits, asked, kind):
    """Of the second that asks: REJECTED, by its kind."""
    gate = Gate(*events, **limits)
    gate.admit()
    before = len(gate.ledger.recent)
    item = gate.admit(**asked)
    if kind is None:
        assert item.life.state is Life.QUEUED
        return
    assert item.life.state is item.record.terminal_state is Life.REJECTED
    assert len(gate.ledger.recent) == before + 1
    assert item.record.error_kind == kind_of(kind)


@pytest.mark.parametrize(
    "state", [s for s in ServerState if s not in {*READY_STATUSES, ServerState.LOADING}]
)
async def test_before_anything_is_spent_everybody_is_turned_away(state):
    """Draining, stopped or faulted; each with a record."""
    gate = Gate()
    gate.admission.state.state = state
    with pytest.raises(Unavailable, match=state.name.lower()):
        gate.admission.turn_away_unless_serving()
    assert gate.ledger.by_state == {"REJECTED": 1}


async def test_session_calls_are_no_measure_of_how_long_a_place_takes():
    """`Retry-After` is made of requests for answers: a call takes a millisecond."""
    gate = Gate(max_queue_depth=1)
    for action, took in ((None, 0.001), (None, 0.001), (None, 0.001), ("append", 7.0)):
        record = RequestRecord("r", 0, 0.0, started_at=0.0, finished_at=took, prefix_action=action)
        record.terminal_state = Life.DONE
        gate.ledger.close(record)
    gate.admit()
    work = SessionWork("a", ListSessions(CacheHints(), 1))
    with pytest.raises(QueueFull) as refusal:
        gate.admission.admit(SessionItem(work, new_record("list")), lambda: True)
    assert refusal.value.retry_after_s == 7


def test_a_record_says_which_call_it_is():
    """A request for an answer is none."""
    assert new_record().operation is None
    assert new_record("fork").operation == "fork"
    assert new_record().request_id != new_record().request_id
