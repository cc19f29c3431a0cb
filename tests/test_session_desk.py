"""Session calls stand in the one line: queued, limited, cancelled and recorded like requests."""

import pytest
import trio
import trio.testing

from flashrt.chat.request import AgentRequest, CacheHints
from flashrt.chat.session_call import (
    CreateSession,
    DeleteSession,
    ForkSession,
    ListSessions,
    ShowSession,
    UndoSession,
)
from flashrt.errors import NotFound, QueueFull, ServerStopping, Unavailable
from flashrt.fsm.lifecycle import Life
from flashrt.items import Failed, Finished
from flashrt.namespaces import namespace
from tests.test_service import asking, assembled

NOBODY = CacheHints()
CALLS = [
    CreateSession(NOBODY),
    ListSessions(NOBODY, 20),
    ShowSession(NOBODY, "x"),
    DeleteSession(NOBODY, "x"),
    ForkSession(NOBODY, "x"),
    UndoSession(NOBODY, "x"),
]
each_call = pytest.mark.parametrize("call", CALLS, ids=lambda call: call.operation)


def desk(**wish):
    """A ready service whose worker nobody runs."""
    return assembled(**wish)[1]


async def end_of(item):
    (end,) = [piece async for piece in item.sink]
    return end


@each_call
async def test_a_call_waits_in_the_line_and_is_cancelled_there(call):
    """Who leaves ends it at once, and its record says so."""
    service = desk()
    item = service.call(call, client="c")
    assert item.life.state is Life.QUEUED
    assert service.health()["queued"] == 1
    service.leave(item)
    service.leave(item)
    assert item.life.state is item.record.terminal_state is Life.CANCELLED
    assert item.record.operation == call.operation
    assert service.health()["queued"] == 0


@each_call
async def test_a_call_counts_in_the_limits(call):
    """A full queue is 429, of the client or of all."""
    service = desk(max_queue_depth=1)
    service.call(call, client="c")
    with pytest.raises(QueueFull):
        service.call(call, client="c")
    with pytest.raises(QueueFull):
        await service.open(AgentRequest("m", ids=(9,)), client="c")


@each_call
async def test_a_stop_ends_what_waits(call):
    """With an error that says so; and nothing new is taken."""
    service = desk()
    item = service.call(call, client="c")
    service.drain()
    with pytest.raises(Unavailable):
        service.call(call, client="c")
    service.cut_off()
    assert isinstance((await end_of(item)).error, ServerStopping)
    assert item.life.state is Life.REJECTED


@each_call
async def test_a_soft_drain_refuses_only_what_begins_anew(call):
    """A fork goes on with what is here."""
    service = desk()
    service.soft_drain()
    if isinstance(call, CreateSession):
        with pytest.raises(Unavailable, match="drained"):
            service.call(call, client="c")
        return
    assert service.call(call, client="c").life.state is Life.QUEUED


@pytest.mark.parametrize(
    ("sources", "expected"),
    [
        ("default", {"prompt_cache_key": "k", "cache_salt": "s"}),
        ("cache_salt", {"cache_salt": "s"}),
        ("api_key", {}),
    ],
)
async def test_a_calls_namespace_is_that_of_a_request_that_says_the_same(sources, expected):
    """By the same setting."""
    service = desk(namespace_from=sources)
    hints = CacheHints(prompt_cache_key="k", cache_salt="s")
    item = service.call(ListSessions(hints, 1), client="c")
    asked = await service.open(AgentRequest("m", ids=(9,), hints=hints), client="c")
    assert item.work.namespace == asked.turn.namespace
    assert item.work.namespace == namespace(CacheHints(**expected), "c", sources)


async def test_a_call_behind_a_turn_sees_what_the_turn_has_done():
    """One line, one thread: what was asked before is over before."""
    async with asking() as (service, ask):
        item = await ask("be kind", "hello")
        call = service.call(ListSessions(NOBODY, 20), client="")
        assert isinstance(await end_of(call), Finished)
        (session,) = call.answer.sessions
        assert session.name == item.record.session
        assert (session.turns, session.messages, session.hot) == (1, 3, True)
        assert call.record.terminal_state is Life.DONE
        assert call.record.queued_ms is not None
        assert call.record.first_delta_ms is call.record.decode_ms is None


async def test_a_refused_call_is_carried_out_and_counted_by_its_kind():
    """DONE with an error: nothing failed, and no such session is there."""
    async with asking() as (service, _):
        call = service.call(ShowSession(NOBODY, "sess_none"), client="")
        end = await end_of(call)
        assert isinstance(end, Failed)
        assert isinstance(end.error, NotFound)
        assert call.record.terminal_state is Life.DONE
        assert call.record.error_kind == "not_found"
        assert service.health()["totals"]["errors"] == {"not_found": 1}
        assert call.answer is None


async def test_report_times_are_those_of_the_wall():
    """The clock of sessions is monotonic."""
    async with asking() as (service, _):
        call = service.call(CreateSession(NOBODY), client="")
        await end_of(call)
        created = service.epoch_s + call.answer.created_at
        assert abs(created - call.record.enqueued_unix_s) < 5


async def test_a_name_reaches_the_turn_before_any_hint():
    """`flashrt_session` is more than what a header says."""
    service = desk()
    hints = CacheHints(session="header", flashrt_session="sess_1")
    item = await service.open(AgentRequest("m", ids=(9,), hints=hints), client="")
    assert item.turn.session_hint == "sess_1"
    await trio.lowlevel.checkpoint()
