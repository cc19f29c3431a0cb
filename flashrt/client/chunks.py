"""What a server sends, as far as a client looks at it: chunks of a stream, and error objects.

Everything has a default: other servers leave fields out, or send null.
"""

import msgspec


class FunctionPiece(msgspec.Struct):
    """A piece of a call: its name, or some of the JSON text of its arguments."""

    name: str | None = None
    arguments: str | None = None


class CallPiece(msgspec.Struct):
    """A piece of the call that has this index in the answer."""

    index: int = 0
    id: str | None = None
    function: FunctionPiece = msgspec.field(default_factory=FunctionPiece)


class MessagePiece(msgspec.Struct):
    """A piece of the answer's message."""

    content: str | None = None
    reasoning_content: str | None = None
    tool_calls: list[CallPiece] | None = None


class Choice(msgspec.Struct):
    """A piece of the answer, and at its end why it ended."""

    delta: MessagePiece = msgspec.field(default_factory=MessagePiece)
    finish_reason: str | None = None


class PromptDetails(msgspec.Struct):
    """How much of the prompt was not computed."""

    cached_tokens: int = 0


class Usage(msgspec.Struct):
    """Counts in tokens."""

    prompt_tokens: int = 0
    completion_tokens: int = 0
    prompt_tokens_details: PromptDetails | None = None


class Block(msgspec.Struct):
    """What is read of the `flashrt` block."""

    decode_tok_per_s: float | None = None


class Fault(msgspec.Struct):
    """OpenAI's error object."""

    message: str = ""


class Chunk(msgspec.Struct):
    """One event of a stream. `error` ends it."""

    choices: list[Choice] = []
    usage: Usage | None = None
    flashrt: Block | None = None
    error: Fault | None = None


class Model(msgspec.Struct):
    """One entry of the list of models."""

    id: str


class Models(msgspec.Struct):
    """The answer of `/models`."""

    data: list[Model]


class State(msgspec.Struct):
    """What is read of `/health`: whether anything is rendered, waits, or runs (null: nothing)."""

    status: str
    rendering: int = 0
    queued: int = 0
    running: object = None


class Refusal(msgspec.Struct):
    """The body of an answer that is no 200."""

    error: Fault
