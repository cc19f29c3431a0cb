"""Sinks and cancel tokens."""

import pytest
import trio

from flashrt.chat.deltas import FinishReason, TextDelta
from flashrt.engine.protocol import TokenLogprobs
from flashrt.errors import AnswerCancelled, ClientLeft
from flashrt.fsm.sink import SinkState
from flashrt.fsm.table import IllegalTransition
from flashrt.items import WAITING_MAX_BYTES, CancelToken, Finished, Output, ResultSink

PIECE = Output((TextDelta("a"),), (1,))
END = Finished(FinishReason.STOP)


def test_a_cancel_token_is_set_once_and_for_all():
    """Cancelling is idempotent and cannot be taken back."""
    token = CancelToken()
    assert not token.cancelled
    token.cancel()
    token.cancel()
    assert token.cancelled


def test_a_cancel_without_a_reason_is_a_client_that_left():
    """With one, whoever is still there is told it."""
    silent, told = CancelToken(), CancelToken()
    silent.cancel()
    told.cancel(AnswerCancelled("x"))

    assert isinstance(silent.reason, ClientLeft)
    assert isinstance(told.reason, AnswerCancelled)


async def test_a_sink_gives_its_pieces_in_order_and_one_end():
    """Whatever was put comes out; then the terminal event; then nothing."""
    sink = ResultSink()
    for piece in (PIECE, PIECE):
        sink.put(piece)
    sink.end(END)
    assert [piece async for piece in sink] == [PIECE, PIECE, END]
    with pytest.raises(trio.EndOfChannel):
        await sink.receive()


def test_a_sink_holds_a_whole_answer_without_a_reader():
    """The engine never waits for a client."""
    sink = ResultSink()
    for _ in range(10_000):
        sink.put(PIECE)
    sink.end(END)
    assert sink.receive_nowait() == PIECE


@pytest.mark.parametrize("late", [lambda sink: sink.put(PIECE), lambda sink: sink.end(END)])
def test_nothing_comes_after_the_end(late):
    """G6: a second ending, or a delta after it, is a bug and raises."""
    sink = ResultSink()
    sink.end(END)
    with pytest.raises(IllegalTransition):
        late(sink)


def test_a_client_that_is_gone_gets_nothing_and_breaks_nothing():
    """Deltas are dropped, the end still ends the sink, leaving again is harmless."""
    sink = ResultSink()
    sink.put(PIECE)
    sink.leave()
    sink.put(PIECE)
    sink.end(END)
    sink.leave()
    assert sink.machine.state is SinkState.ENDED


def test_what_waits_is_weighed_and_what_is_read_is_not():
    """A reader that keeps up never fills its sink; one that takes nothing does in the end."""
    sink = ResultSink()
    heavy = Output((TextDelta("x" * 1_000_000),), (1,), (TokenLogprobs(0.0, ((1, 0.0),) * 20),))
    for _ in range(500):
        sink.put(heavy)
        assert sink.receive_nowait() == heavy
    assert (sink.waiting_bytes, sink.is_overfull) == (0, False)
    for _ in range(WAITING_MAX_BYTES // heavy.size_bytes):
        sink.put(heavy)
    assert not sink.is_overfull
    sink.put(heavy)
    assert sink.is_overfull
    sink.end(END)
