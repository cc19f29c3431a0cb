"""From an item's sink to bytes: as server-sent events, or collected into one body."""

import logging
import time
from collections.abc import AsyncIterator

import trio

from flashrt.chat.deltas import Delta
from flashrt.errors import EngineFailed
from flashrt.items import Failed, Finished, Output, ResultSink, SinkItem, WorkItem
from flashrt.protocols.answer import BodyWriter, StreamWriter

log = logging.getLogger("flashrt.http")


async def stream(
    item: WorkItem, writer: StreamWriter, *, heartbeat_s: float
) -> AsyncIterator[bytes]:
    """The events of one answer; exactly one ending, which is an error event if anything fails.

    Only reads the sink; whoever opened the item leaves it.
    """
    try:
        yield writer.opening()
        ended, spoke_at = False, trio.current_time()
        while not ended:
            first = await _next(item.sink, spoke_at + heartbeat_s)
            if first is None:
                yield writer.pulse(progress(item))
                spoke_at = trio.current_time()
                continue
            outputs, terminal = _with_waiting(item.sink, first)
            written = _written(writer, outputs)
            if terminal is not None:
                written += _ending(item, writer, terminal)
                ended = True
            if written:  # else it is held back: that is silence too
                yield written
                spoke_at = trio.current_time()
    except Exception as error:
        # The headers are out, so no handler of quart's can answer any more.
        log.exception("a stream failed: %s", item.record.request_id)
        yield writer.failure(error)


def progress(item: WorkItem) -> dict[str, object]:
    """How far a request is: what a silent stream says to show that it lives."""
    record = item.record
    return {
        "state": item.life.state.name,
        "total_tokens": record.prompt_tokens,
        "cached_tokens": record.cached_tokens,
        "processed_tokens": record.processed_tokens,
        "completion_tokens": record.completion_tokens,
        "elapsed_ms": round((time.perf_counter() - record.enqueued_at) * 1000, 1),
    }


async def collect(item: WorkItem, writer: BodyWriter) -> bytes:
    """The body of one answer; raises what the answer failed with."""
    while True:
        match await _receive(item.sink):
            case Output(deltas, token_ids, logprobs):
                writer.add(deltas, token_ids, logprobs)
            case Finished(reason, stop_string):
                return writer.ending(reason, item.record, stop_string)
            case Failed(error):
                raise error


async def _next(sink: ResultSink, deadline: float) -> SinkItem | None:
    """The next piece, or None at `deadline` in trio's seconds. No piece is lost in between."""
    with trio.move_on_at(deadline):
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
    if any(output.logprobs for output in outputs):
        # Which text an id belongs to shows in the output that it came with.
        return b"".join(writer.pieces(o.deltas, o.token_ids, o.logprobs) for o in outputs)
    deltas: list[Delta] = []
    token_ids: list[int] = []
    for output in outputs:
        deltas.extend(output.deltas)
        token_ids.extend(output.token_ids)
    return writer.pieces(deltas, token_ids)


def _ending(item: WorkItem, writer: StreamWriter, terminal: Finished | Failed) -> bytes:
    match terminal:
        case Finished(reason, stop_string):
            return writer.ending(reason, item.record, stop_string)
        case Failed(error):
            return writer.failure(error)
