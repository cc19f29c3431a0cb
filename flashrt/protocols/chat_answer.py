"""Chat Completions answers: deltas to chunks, or to one body. Both come from the same deltas."""

from collections.abc import Sequence
from typing import Literal

import msgspec
from msgspec import UNSET, UnsetType

from flashrt.chat.deltas import (
    Delta,
    FinishReason,
    TextDelta,
    ThinkingDelta,
    ToolCallArguments,
    ToolCallEnd,
    ToolCallStart,
)
from flashrt.protocols.answer import Block, Head, Record, Usage, flashrt_block, joined
from flashrt.protocols.error import error_event
from flashrt.protocols.fields import Call
from flashrt.protocols.logprobs import ChatLogprobs, TokenLogprobs, chat_logprobs
from flashrt.protocols.sse import DONE, event


class FunctionPiece(msgspec.Struct):
    """Name (at the start of a call only) and a piece of the arguments' JSON text."""

    name: str | UnsetType = UNSET
    arguments: str = ""


class CallPiece(msgspec.Struct):
    """A tool call or a piece of one. A piece after the first has only index and arguments."""

    index: int | UnsetType = UNSET
    id: str | UnsetType = UNSET
    type: Literal["function"] | UnsetType = UNSET
    function: FunctionPiece = msgspec.field(default_factory=FunctionPiece)


class MessagePiece(msgspec.Struct):
    """A delta, or a whole message; what is unset is left out of the JSON."""

    role: Literal["assistant"] | UnsetType = UNSET
    content: str | UnsetType | None = UNSET
    reasoning_content: str | UnsetType = UNSET
    tool_calls: list[CallPiece] | UnsetType = UNSET


class ChunkChoice(msgspec.Struct):
    """The choice of a chunk. `finish_reason` is null until the end: clients look for it."""

    delta: MessagePiece
    index: int = 0
    finish_reason: str | None = None
    logprobs: ChatLogprobs | UnsetType | None = UNSET


class Chunk(msgspec.Struct):
    """One event of a streamed answer."""

    id: str
    created: int
    model: str
    choices: list[ChunkChoice]
    object: str = "chat.completion.chunk"
    usage: Usage | UnsetType = UNSET
    flashrt: Block | UnsetType = UNSET


class WholeChoice(msgspec.Struct):
    """The choice of a buffered answer."""

    message: MessagePiece
    finish_reason: str
    index: int = 0
    logprobs: ChatLogprobs | None = None


class Completion(msgspec.Struct):
    """A buffered answer."""

    id: str
    created: int
    model: str
    choices: list[WholeChoice]
    usage: Usage
    flashrt: Block
    object: str = "chat.completion"


class ChatStream:
    """Writes the answer to one streamed chat request."""

    def __init__(self, head: Head, call: Call) -> None:
        self._head = head
        self._call = call
        self._token_ids: list[int] = []

    def opening(self) -> bytes:
        """What is sent as soon as the request is admitted."""
        return event(self._chunk([ChunkChoice(MessagePiece(role="assistant", content=""))]))

    def pulse(self, progress: Block) -> bytes:
        """A chunk that adds nothing but says how far things are. Some clients' timers do not count
        comments as life."""
        chunk = self._chunk([ChunkChoice(MessagePiece())])
        chunk.flashrt = {"progress": progress}
        return event(chunk)

    def pieces(
        self,
        deltas: Sequence[Delta],
        token_ids: Sequence[int],
        logprobs: Sequence[TokenLogprobs] = (),
    ) -> bytes:
        """The events of one output; the first one bears the logprobs of all its tokens."""
        self._token_ids.extend(token_ids)
        choices = [
            ChunkChoice(_piece(delta))
            for delta in joined(deltas)
            if not isinstance(delta, ToolCallEnd)  # Chat has no word for it
        ]
        if logprobs:
            choices = choices or [ChunkChoice(MessagePiece())]
            choices[0].logprobs = logprobs_of(self._head, token_ids, logprobs)
        return b"".join(event(self._chunk([choice])) for choice in choices)

    def ending(self, reason: FinishReason, record: Record, stop_string: str | None = None) -> bytes:
        """The finish chunk, the usage chunk if asked for, and the terminator."""
        last = finish = self._chunk([ChunkChoice(MessagePiece(), finish_reason=reason.value)])
        if self._call.include_usage:
            last = self._chunk([])
            last.usage = Usage.of(record)
        last.flashrt = flashrt_block(self._call, record, self._token_ids)
        extra = b"" if last is finish else event(last)
        return event(finish) + extra + DONE

    def failure(self, error: Exception) -> bytes:
        """The one event of an answer that failed; no terminator follows."""
        return error_event(error)

    def _chunk(self, choices: list[ChunkChoice]) -> Chunk:
        head = self._head
        return Chunk(f"chatcmpl-{head.request_id}", head.created, head.model, choices)


def _piece(delta: Delta) -> MessagePiece:
    match delta:
        case TextDelta(text):
            return MessagePiece(content=text)
        case ThinkingDelta(text):
            return MessagePiece(reasoning_content=text)
        case ToolCallStart(index, call_id, name):
            function = FunctionPiece(name=name)
            return MessagePiece(tool_calls=[CallPiece(index, call_id, "function", function)])
        case ToolCallArguments(index, text):
            return MessagePiece(tool_calls=[CallPiece(index, function=FunctionPiece(UNSET, text))])
        case ToolCallEnd():
            return MessagePiece()


def logprobs_of(head: Head, ids: Sequence[int], logprobs: Sequence[TokenLogprobs]) -> ChatLogprobs:
    """The logprobs of some ids, written out."""
    assert head.token_texts is not None, "logprobs without the vocabulary to write them in"
    return chat_logprobs(ids, logprobs, head.token_texts)


class ChatBody:
    """Folds an answer into the body of one chat request."""

    def __init__(self, head: Head, call: Call) -> None:
        self._head = head
        self._call = call
        self._text: list[str] = []
        self._thinking: list[str] = []
        self._calls: list[ToolCallStart] = []
        self._arguments: dict[int, list[str]] = {}
        self._whole: set[int] = set()
        self._logprobs: list[TokenLogprobs] = []
        self._token_ids: list[int] = []

    def add(
        self,
        deltas: Sequence[Delta],
        token_ids: Sequence[int],
        logprobs: Sequence[TokenLogprobs] = (),
    ) -> None:
        """Take in one output."""
        self._token_ids.extend(token_ids)
        self._logprobs.extend(logprobs)
        for delta in deltas:
            match delta:
                case TextDelta(text):
                    self._text.append(text)
                case ThinkingDelta(text):
                    self._thinking.append(text)
                case ToolCallStart(index):
                    self._calls.append(delta)
                    self._arguments[index] = []
                case ToolCallArguments(index, text):
                    self._arguments[index].append(text)
                case ToolCallEnd(index):
                    self._whole.add(index)

    def ending(self, reason: FinishReason, record: Record, stop_string: str | None = None) -> bytes:
        """The body."""
        head = self._head
        whole = Completion(
            f"chatcmpl-{head.request_id}",
            head.created,
            head.model,
            [WholeChoice(self._message(), reason.value, logprobs=self._told())],
            Usage.of(record),
            flashrt_block(self._call, record, self._token_ids),
        )
        return msgspec.json.encode(whole)

    def _told(self) -> ChatLogprobs | None:
        if not self._logprobs:
            return None
        return logprobs_of(self._head, self._token_ids, self._logprobs)

    def _message(self) -> MessagePiece:
        text = "".join(self._text)
        thinking = "".join(self._thinking)
        calls = [
            CallPiece(
                UNSET,
                call.call_id,
                "function",
                FunctionPiece(call.name, "".join(self._arguments[call.index])),
            )
            for call in self._calls
            if call.index in self._whole  # what was left open must not be executed
        ]
        return MessagePiece(
            role="assistant",
            # OpenAI's own answers say null where a call comes without text.
            content=None if calls and not text else text,
            reasoning_content=thinking or UNSET,
            tool_calls=calls or UNSET,
        )
