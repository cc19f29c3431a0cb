"""Anthropic Messages requests: JSON to `AgentRequest`."""

from typing import Any

import msgspec

from flashrt.chat.request import AgentRequest
from flashrt.errors import BadRequest
from flashrt.protocols.fields import (
    Call,
    SharedFields,
    draft_tokens,
    pin_prefix,
    read_json,
    stop_strings,
    token_limit,
)
from flashrt.protocols.messages_content import conversation
from flashrt.protocols.messages_thinking import ThinkingConfig, thinking
from flashrt.protocols.messages_tools import OutputFormat, ToolChoice, offered, structure


class OutputConfig(msgspec.Struct):
    """`output_config`."""

    effort: str | None = None
    format: OutputFormat | None = None


class MessagesFields(SharedFields, kw_only=True):
    """The fields of a Messages request. Without `max_tokens` the answer may fill the window."""

    messages: list[dict[str, Any]]
    system: str | list[dict[str, Any] | str] | None = None
    max_tokens: int | None = None
    stop_sequences: list[str] | None = None
    tools: list[dict[str, Any]] | None = None
    tool_choice: ToolChoice | None = None
    thinking: ThinkingConfig | None = None
    output_config: OutputConfig | None = None
    output_format: OutputFormat | None = None


class TokenCount(msgspec.Struct):
    """The answer of `/v1/messages/count_tokens`."""

    input_tokens: int


_DECODER = msgspec.json.Decoder(MessagesFields)


def read_messages(body: bytes) -> Call:
    """Translate a Messages body; raises BadRequest with the path of what is wrong.

    A body whose tokens are counted is read the same way.
    """
    fields = read_json(body, _DECODER)
    if not fields.messages:
        raise BadRequest("`messages` is empty; it needs at least one message.", param="messages")
    output = fields.output_config or OutputConfig()
    field = "output_format" if output.format is None else "output_config.format"
    tools = offered(fields.tools or ())
    structured = structure(tools, fields.tool_choice, output.format or fields.output_format, field)
    thought = thinking(fields.thinking, output.effort)
    request = AgentRequest(
        model=fields.model or "",
        messages=conversation(fields.system, fields.messages),
        tools=tools,
        template_args=thought.template_args,
        sampling=fields.sampling(),
        max_tokens=token_limit("max_tokens", fields.max_tokens),
        stop=stop_strings(fields.stop_sequences, "stop_sequences"),
        draft_tokens=draft_tokens(fields.flashrt_draft_tokens),
        thinking_tokens=thought.tokens,
        shape=structured.shape,
        reads_calls=structured.reads_calls,
        return_token_ids=bool(fields.flashrt_return_token_ids),
        pin_prefix=pin_prefix(fields.flashrt_pin_prefix),
        hints=fields.hints(),
    )
    shows = fields.thinking is None or fields.thinking.display != "omitted"
    return Call(request, stream=bool(fields.stream), shows_thinking=shows)


def count_body(tokens: int) -> bytes:
    """The answer of `/v1/messages/count_tokens`."""
    return msgspec.json.encode(TokenCount(tokens))
