"""What a Messages answer is made of: its blocks, its usage, and the events of a stream."""

from typing import Any, Literal

import msgspec
from msgspec import UNSET, UnsetType

from flashrt.protocols.answer import Block, Record
from flashrt.protocols.sse import event


class TextBlock(msgspec.Struct, tag="text"):
    """Visible text; at the start of a block, none."""

    text: str = ""


class ThinkingBlock(msgspec.Struct, tag="thinking"):
    """Thinking, with a signature that a client sends back."""

    thinking: str = ""
    signature: str = ""


class ToolUseBlock(msgspec.Struct, tag="tool_use"):
    """A call. `input` is an object; at the start of a block it is empty."""

    id: str
    name: str
    input: Any = msgspec.field(default_factory=dict)


AnswerBlock = TextBlock | ThinkingBlock | ToolUseBlock


class TextPiece(msgspec.Struct, tag="text_delta"):
    """More of a text."""

    text: str


class ThinkingPiece(msgspec.Struct, tag="thinking_delta"):
    """More of a thought."""

    thinking: str


class SignaturePiece(msgspec.Struct, tag="signature_delta"):
    """The signature of a thought, whole, at its end."""

    signature: str


class InputPiece(msgspec.Struct, tag="input_json_delta"):
    """More of the JSON text of a call's input."""

    partial_json: str


Piece = TextPiece | ThinkingPiece | SignaturePiece | InputPiece


class ThinkingTokens(msgspec.Struct):
    """`usage.output_tokens_details`."""

    thinking_tokens: int


class MessageUsage(msgspec.Struct):
    """`usage`. The prompt has `input_tokens` and the cached ones together.

    Nothing is created for a later request to read at a price: that figure is always 0.
    """

    input_tokens: int
    output_tokens: int
    output_tokens_details: ThinkingTokens
    cache_read_input_tokens: int
    cache_creation_input_tokens: int = 0

    @classmethod
    def of(cls, record: Record | None) -> "MessageUsage":
        """The counts of a record, as far as it is filled."""
        if record is None:
            return cls(0, 0, ThinkingTokens(0), 0)
        return cls(
            record.prompt_tokens - record.cached_tokens,
            record.completion_tokens,
            ThinkingTokens(record.reasoning_tokens),
            record.cached_tokens,
        )


class WholeMessage(msgspec.Struct, tag="message"):
    """A whole answer, or the beginning of a streamed one."""

    id: str
    model: str
    content: list[AnswerBlock]
    usage: MessageUsage
    role: Literal["assistant"] = "assistant"
    stop_reason: str | None = None
    stop_sequence: str | None = None
    flashrt: Block | UnsetType = UNSET


class MessageStart(msgspec.Struct, tag="message_start"):
    """The first event that says something."""

    message: WholeMessage


class BlockStart(msgspec.Struct, tag="content_block_start"):
    """A block begins; `index` counts the blocks of the answer from 0."""

    index: int
    content_block: AnswerBlock


class BlockDelta(msgspec.Struct, tag="content_block_delta"):
    """More of the block that is open."""

    index: int
    delta: Piece


class BlockStop(msgspec.Struct, tag="content_block_stop"):
    """The block is over."""

    index: int


class Stop(msgspec.Struct):
    """Why an answer ended; `stop_sequence` is the one that ended it, if one did."""

    stop_reason: str
    stop_sequence: str | None = None


class MessageDelta(msgspec.Struct, tag="message_delta"):
    """Why the answer ended, and what it came to."""

    delta: Stop
    usage: MessageUsage


class MessageStop(msgspec.Struct, tag="message_stop"):
    """The last event of an answer that is whole."""

    flashrt: Block | UnsetType = UNSET


class Ping(msgspec.Struct, tag="ping"):
    """Nothing is to be said yet."""

    flashrt: Block | UnsetType = UNSET


BlockEvent = BlockStart | BlockDelta | BlockStop
MessageEvent = MessageStart | BlockEvent | MessageDelta | MessageStop | Ping


def written(one: MessageEvent) -> bytes:
    """An event under its own name: clients look at nothing else."""
    return event(one, str(one.__struct_config__.tag))
