"""The response object, and the items that an answer is made of."""

from typing import Any

import msgspec
from msgspec import UNSET, UnsetType

from flashrt.protocols.answer import Block, Record
from flashrt.protocols.logprobs import ContentLogprob


class OutputText(msgspec.Struct, tag_field="type", tag="output_text"):
    """Visible text. `logprobs`: of its tokens, where they were asked for."""

    text: str = ""
    annotations: list[Any] = []
    logprobs: list[ContentLogprob] = []


class SummaryText(msgspec.Struct, tag_field="type", tag="summary_text"):
    """Thinking, where the client asked for a summary: all of it."""

    text: str = ""


class ReasoningText(msgspec.Struct, tag_field="type", tag="reasoning_text"):
    """Thinking, where it did not."""

    text: str = ""


class ReasoningItem(msgspec.Struct, tag_field="type", tag="reasoning"):
    """A think block. `encrypted_content`: the same, sealed, where it was asked for."""

    id: str
    status: str
    summary: list[SummaryText] = []
    content: list[ReasoningText] | UnsetType = UNSET
    encrypted_content: str | UnsetType | None = UNSET


class MessageItem(msgspec.Struct, tag_field="type", tag="message"):
    """Visible text in a message."""

    id: str
    status: str
    content: list[OutputText] = []
    role: str = "assistant"


class FunctionCallItem(msgspec.Struct, tag_field="type", tag="function_call"):
    """A call with JSON arguments. With `status` incomplete it must not be executed."""

    id: str
    status: str
    call_id: str
    name: str
    arguments: str = ""
    namespace: str | UnsetType = UNSET


class CustomCallItem(msgspec.Struct, tag_field="type", tag="custom_tool_call"):
    """A call with a text."""

    id: str
    status: str
    call_id: str
    name: str
    input: str = ""
    namespace: str | UnsetType = UNSET


OutputItem = ReasoningItem | MessageItem | FunctionCallItem | CustomCallItem


class InputDetails(msgspec.Struct):
    """`usage.input_tokens_details`. Nothing is charged for what is kept, so nothing is counted."""

    cached_tokens: int
    cache_write_tokens: int = 0


class OutputDetails(msgspec.Struct):
    """`usage.output_tokens_details`."""

    reasoning_tokens: int


class ResponseUsage(msgspec.Struct):
    """`usage`."""

    input_tokens: int
    input_tokens_details: InputDetails
    output_tokens: int
    output_tokens_details: OutputDetails
    total_tokens: int

    @classmethod
    def of(cls, record: Record) -> "ResponseUsage":
        """The counts of a record."""
        return cls(
            record.prompt_tokens,
            InputDetails(record.cached_tokens),
            record.completion_tokens,
            OutputDetails(record.reasoning_tokens),
            record.prompt_tokens + record.completion_tokens,
        )


class ResponseError(msgspec.Struct):
    """Why an answer failed, in one of the API's words."""

    code: str
    message: str


class IncompleteDetails(msgspec.Struct):
    """Why an answer is not whole."""

    reason: str


class Response(msgspec.Struct, kw_only=True):
    """The response object, at any moment of an answer. Of a request alone it has what the client
    wrote: the API repeats it."""

    id: str = ""
    object: str = "response"
    created_at: int = 0
    status: str = "in_progress"
    model: str = ""
    error: ResponseError | None = None
    incomplete_details: IncompleteDetails | None = None
    output: list[OutputItem] = []
    usage: ResponseUsage | None = None
    background: bool = False
    instructions: str | None = None
    max_output_tokens: int | None = None
    metadata: dict[str, str] | None = None
    parallel_tool_calls: bool = True
    previous_response_id: str | None = None
    prompt_cache_key: str | None = None
    reasoning: dict[str, Any] = {}
    safety_identifier: str | None = None
    service_tier: str = "default"
    store: bool = True
    temperature: float | None = None
    text: dict[str, Any] = {}
    tool_choice: Any = "auto"
    tools: list[dict[str, Any]] = []
    top_logprobs: int = 0
    top_p: float | None = None
    truncation: str = "disabled"
    user: str | None = None
    flashrt: Block | UnsetType = UNSET


class InputTokens(msgspec.Struct):
    """How many tokens a prompt has."""

    input_tokens: int
    object: str = "response.input_tokens"


class DeletedResponse(msgspec.Struct):
    """What is said of an answer that is forgotten."""

    id: str
    object: str = "response"
    deleted: bool = True
