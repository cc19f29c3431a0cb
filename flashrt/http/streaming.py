"""From an item's sink to bytes: as server-sent events, or collected into one body."""

import logging
from collections.abc import AsyncIterator

import trio

from flashrt.chat.deltas import Delta
from flashrt.errors import EngineFailed
from flashrt.items import Failed, Finished, Output, ResultSink, SinkItem, WorkItem
from flashrt.protocols.answer import BodyWriter, StreamWriter
from flashrt.protocols.error import error_event
from flashrt.protocols.logprobs import TokenLogprobs
from flashrt.protocols.sse import HEARTBEAT

log = logging.getLogger("flashrt.http")

PULSE_EVERY = 12
"""Every so many heartbeats in a row an empty piece is sent: some clients' timers (240 s to 300 s)
do not count comments."""


async def stream(
    item: WorkItem, writer: StreamWriter, *, heartbeat_s: float
) -> AsyncIterator[bytes]:
    """The events of one answer; exactly one ending, which is an error event if anything fails.

    Only reads the sink; whoever opened the item leaves it.
    """
    try:
        yield writer.opening()
        silent = 0
        ended = False
        while not ended:
            first = await _next(item.sink, heartbeat_s)
            if first is None:
                silent += 1
                yield writer.pulse() if silent % PULSE_EVERY == 0 else HEARTBEAT
                continue
            silent = 0
            outputs, terminal = _with_waiting(item.sink, first)
            written = _written(writer, outputs)
            if terminal is not None:
                written += _ending(item, writer, terminal)
                ended = True
            if written:
                yield written
    except Exception as error:
        # The headers are out, so no handler of quart's can answer any more.
        log.exception("a stream failed: %s", item.record.request_id)
        yield error_event(error)


async def collect(item: WorkItem, writer: BodyWriter) -> bytes:
    """The body of one answer; raises what the answer failed with."""
    while True:
        match await _receive(item.sink):
            case Output(deltas, token_ids, logprobs):
                writer.add(deltas, token_ids, logprobs)
            case Finished(reason):
                return writer.ending(reason, item.record)
            case Failed(error):
                raise error


async def _next(sink: ResultSink, heartbeat_s: float) -> SinkItem | None:
    """The next piece, or None after `heartbeat_s` of silence. No piece is lost in between."""
    with trio.move_on_after(heartbeat_s):
        return await _receive(sink)
    return None


async def _receive(sink: ResultSink) -> SinkItem:
    try:
        return await sink.receive()
    except (trio.EndOfChannel, trio.ClosedResourceError):
        raise EngineFailed("The answer ended without a result.") from None


def _with_waiting(
    sink: ResultSink, first: SinkItem
) -> tuple[list[Output], Finished | Failed | None]:
    """`first` and all that has come since: a slow reader gets fewer, larger pieces."""
    outputs: list[Output] = []
    piece: SinkItem = first
    while isinstance(piece, Output):
        outputs.append(piece)
        try:
            piece = sink.receive_nowait()
        except (trio.WouldBlock, trio.EndOfChannel):
            return outputs, None
    return outputs, piece


def _written(writer: StreamWriter, outputs: list[Output]) -> bytes:
    deltas: list[Delta] = []
    token_ids: list[int] = []
    logprobs: list[TokenLogprobs] = []
    for output in outputs:
        deltas.extend(output.deltas)
        token_ids.extend(output.token_ids)
        logprobs.extend(output.logprobs)
    return writer.pieces(deltas, token_ids, logprobs)


def _ending(item: WorkItem, writer: StreamWriter, terminal: Finished | Failed) -> bytes:
    match terminal:
        case Finished(reason):
            return writer.ending(reason, item.record)
        case Failed(error):
            return error_event(error)
