"""Anthropic Messages answers: deltas to events, or to one body. Both come from the same deltas."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType

import msgspec

from flashrt.chat.deltas import Delta, FinishReason
from flashrt.protocols.answer import Block, Head, Record, flashrt_block, joined
from flashrt.protocols.error import fault_of
from flashrt.protocols.fields import Call
from flashrt.protocols.logprobs import TokenLogprobs
from flashrt.protocols.messages_blocks import AnswerBlocks
from flashrt.protocols.messages_error import failure_event
from flashrt.protocols.messages_events import (
    MessageDelta,
    MessageStart,
    MessageStop,
    MessageUsage,
    Ping,
    Stop,
    WholeMessage,
    written,
)

STOP_REASONS: Mapping[FinishReason, str] = MappingProxyType(
    {
        FinishReason.STOP: "end_turn",
        FinishReason.LENGTH: "max_tokens",
        FinishReason.TOOL_CALLS: "tool_use",
    }
)


class MessagesStream:
    """Writes the answer to one streamed request.

    What is cached belongs into the first event of the message, and is known only once the engine
    has begun. Until then there are pings, which clients look past.
    """

    def __init__(self, head: Head, call: Call) -> None:
        self._head = head
        self._call = call
        self._blocks = AnswerBlocks(shows_thinking=call.shows_thinking)
        self._started = False
        self._token_ids: list[int] = []

    def opening(self) -> bytes:
        """What is sent as soon as the request is admitted."""
        return written(Ping())

    def pulse(self, progress: Block) -> bytes:
        """A ping that says how far things are; behind the start, once that can be told."""
        record = self._head.record
        begun = record is not None and record.prefix_action is not None
        start = self._start() if begun else b""
        return start + written(Ping({"progress": progress}))

    def pieces(
        self,
        deltas: Sequence[Delta],
        token_ids: Sequence[int],
        logprobs: Sequence[TokenLogprobs] = (),
    ) -> bytes:
        """The events of one output. This protocol has no logprobs."""
        self._token_ids.extend(token_ids)
        events = b"".join(written(one) for one in self._blocks.take(joined(deltas)))
        return self._start() + events if events else b""

    def ending(self, reason: FinishReason, record: Record, stop_string: str | None = None) -> bytes:
        """The end of what is open, why, what it came to, and the last event."""
        start = self._start()
        closed = b"".join(written(one) for one in self._blocks.close())
        delta = MessageDelta(stop(reason, stop_string), MessageUsage.of(record))
        last = MessageStop(flashrt_block(self._call, record, self._token_ids))
        return start + closed + written(delta) + written(last)

    def failure(self, error: Exception) -> bytes:
        """The one event of an answer that failed; nothing follows."""
        return failure_event(fault_of(error), self._head.request_id)

    def _start(self) -> bytes:
        if self._started:
            return b""
        self._started = True
        return written(MessageStart(message(self._head, self._head.record)))


class MessagesBody:
    """Folds an answer into the body of one request."""

    def __init__(self, head: Head, call: Call) -> None:
        self._head = head
        self._call = call
        self._blocks = AnswerBlocks(shows_thinking=call.shows_thinking)
        self._token_ids: list[int] = []

    def add(
        self,
        deltas: Sequence[Delta],
        token_ids: Sequence[int],
        logprobs: Sequence[TokenLogprobs] = (),
    ) -> None:
        """Take in one output."""
        self._token_ids.extend(token_ids)
        for _ in self._blocks.take(deltas):
            pass

    def ending(self, reason: FinishReason, record: Record, stop_string: str | None = None) -> bytes:
        """The body."""
        whole = message(self._head, record)
        ended = stop(reason, stop_string)
        whole.content = self._blocks.content()
        whole.stop_reason, whole.stop_sequence = ended.stop_reason, ended.stop_sequence
        whole.flashrt = flashrt_block(self._call, record, self._token_ids)
        return msgspec.json.encode(whole)


def message(head: Head, record: Record | None) -> WholeMessage:
    """An answer without content."""
    return WholeMessage(f"msg_{head.request_id}", head.model, [], MessageUsage.of(record))


def stop(reason: FinishReason, stop_string: str | None) -> Stop:
    """Why an answer ended, in this protocol's words."""
    if reason is FinishReason.STOP and stop_string is not None:
        return Stop("stop_sequence", stop_string)
    return Stop(STOP_REASONS[reason])
