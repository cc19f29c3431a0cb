"""What every answer carries: its head, usage, the `flashrt` block; and how deltas are joined."""

from collections.abc import Iterator, Sequence
from typing import Protocol

import attrs
import msgspec

from flashrt.chat.deltas import Delta, FinishReason, TextDelta, ThinkingDelta, ToolCallArguments
from flashrt.protocols.fields import Call
from flashrt.protocols.logprobs import TokenLogprobs, TokenTexts

Block = dict[str, object]
"""The `flashrt` block: the request's record, as JSON."""


class Record(Protocol):
    """What an answer needs of a request's record.

    `prefix_action` None: the engine has not begun, and what is cached is not known.
    """

    @property
    def prefix_action(self) -> str | None: ...
    @property
    def prompt_ids(self) -> Sequence[int]: ...
    @property
    def prompt_tokens(self) -> int: ...
    @property
    def completion_tokens(self) -> int: ...
    @property
    def cached_tokens(self) -> int: ...
    @property
    def reasoning_tokens(self) -> int: ...
    @property
    def lineage(self) -> Sequence[tuple[int, bool, Sequence[int]]]: ...
    def report(self) -> Block:
        """The fields of the `flashrt` block."""
        ...


@attrs.frozen
class Head:
    """What all parts of one answer have in common. `model` is the name the client asked for.

    `prompt_text`: the prompt, where the client wants it repeated in front of the answer.
    `token_texts`: how ids are written; needed where logprobs are shown.
    `record`: of the request, as it fills: what is cached is known once the engine has begun.
    """

    request_id: str
    created: int
    model: str
    prompt_text: str = ""
    token_texts: TokenTexts | None = None
    record: "Record | None" = None


class StreamWriter(Protocol):
    """Writes one streamed answer: opening, then pieces and pulses, then one ending or failure.

    `stop_string`: the one that ended the answer, where one did.
    """

    def opening(self) -> bytes: ...
    def pulse(self, progress: Block) -> bytes: ...
    def pieces(
        self,
        deltas: Sequence[Delta],
        token_ids: Sequence[int],
        logprobs: Sequence[TokenLogprobs] = (),
    ) -> bytes: ...
    def ending(
        self, reason: FinishReason, record: Record, stop_string: str | None = None
    ) -> bytes: ...
    def failure(self, error: Exception) -> bytes: ...


class BodyWriter(Protocol):
    """Writes one buffered answer, by folding the same deltas."""

    def add(
        self,
        deltas: Sequence[Delta],
        token_ids: Sequence[int],
        logprobs: Sequence[TokenLogprobs] = (),
    ) -> None: ...
    def ending(
        self, reason: FinishReason, record: Record, stop_string: str | None = None
    ) -> bytes: ...


class PromptDetails(msgspec.Struct):
    """`usage.prompt_tokens_details`."""

    cached_tokens: int


class CompletionDetails(msgspec.Struct):
    """`usage.completion_tokens_details`."""

    reasoning_tokens: int


class Usage(msgspec.Struct):
    """`usage`."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: PromptDetails
    completion_tokens_details: CompletionDetails

    @classmethod
    def of(cls, record: Record) -> "Usage":
        """The counts of a record."""
        return cls(
            record.prompt_tokens,
            record.completion_tokens,
            record.prompt_tokens + record.completion_tokens,
            PromptDetails(record.cached_tokens),
            CompletionDetails(record.reasoning_tokens),
        )


def flashrt_block(call: Call, record: Record, token_ids: Sequence[int]) -> Block:
    """The record as the client sees it; with the ids of prompt and answer if it asked for them."""
    block = dict(record.report())
    if call.request.return_token_ids:
        block["prompt_token_ids"] = list(record.prompt_ids)
        block["completion_token_ids"] = list(token_ids)
        block["lineage"] = [
            [stop, "decode" if decoded else "prefill", list(beyond)]
            for stop, decoded, beyond in record.lineage
        ]
    return block


def joined(deltas: Sequence[Delta]) -> Iterator[Delta]:
    """The same answer in fewer deltas: neighbours of one kind become one."""
    before: Delta | None = None
    for delta in deltas:
        together = None if before is None else _join(before, delta)
        if before is not None and together is None:
            yield before
        before = delta if together is None else together
    if before is not None:
        yield before


def _join(first: Delta, second: Delta) -> Delta | None:
    match first, second:
        case (TextDelta(a), TextDelta(b)):
            return TextDelta(a + b)
        case (ThinkingDelta(a), ThinkingDelta(b)):
            return ThinkingDelta(a + b)
        case (ToolCallArguments(i, a), ToolCallArguments(j, b)) if i == j:
            return ToolCallArguments(i, a + b)
    return None
