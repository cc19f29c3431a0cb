"""Chat Completions requests: JSON to `AgentRequest`."""

import re
from typing import Any

import attrs
import msgspec

from flashrt.chat.request import AgentRequest, Json
from flashrt.errors import BadRequest
from flashrt.protocols.fields import (
    Call,
    CommonFields,
    between,
    draft_tokens,
    only,
    pin_prefix,
    read_json,
    stop_strings,
    token_limit,
)
from flashrt.protocols.structure import ResponseFormat, structure
from flashrt.protocols.thinking import Reasoning, Thinking, thinking

TOP_LOGPROBS_MAX = 20

TOOL_NAME = r"[^\s<>]{1,256}"
"""The model writes the name inside a tag, from which it must be readable again."""


class Tool(msgspec.Struct):
    """A tool on offer. The function stays as the client wrote it: the template shows all of it."""

    function: dict[str, Any] | None = None
    type: str = "function"


class ChatFields(CommonFields, kw_only=True):
    """The fields of a Chat Completions request. `chat.messages` reads the messages themselves."""

    messages: list[dict[str, Any]]
    tools: list[Tool] | None = None
    tool_choice: str | dict[str, Any] | None = None
    parallel_tool_calls: bool | None = None
    max_completion_tokens: int | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    enable_thinking: bool | None = None
    reasoning_effort: str | None = None
    reasoning: Reasoning | None = None
    thinking_budget: int | None = None
    continue_final_message: bool | None = None
    add_generation_prompt: bool | None = None
    response_format: ResponseFormat | None = None
    logprobs: bool | None = None
    top_logprobs: int | None = None
    functions: list[Any] | None = None
    modalities: list[str] | None = None

    def thinking(self) -> Thinking:
        """The fields about thinking, brought together; raises BadRequest."""
        return thinking(
            template_kwargs=self.chat_template_kwargs,
            enable_thinking=self.enable_thinking,
            reasoning_effort=self.reasoning_effort,
            reasoning=self.reasoning,
            thinking_budget=self.thinking_budget,
        )


_DECODER = msgspec.json.Decoder(ChatFields)


def read_chat(body: bytes) -> Call:
    """Translate a Chat Completions body; raises BadRequest with the path of what is wrong."""
    fields = read_json(body, _DECODER)
    _refuse_unsupported(fields)
    if not fields.messages:
        raise BadRequest("`messages` is empty; it needs at least one message.", param="messages")
    tools = offered(fields.tools)
    structured = structure(
        tools,
        response_format=fields.response_format,
        tool_choice=fields.tool_choice,
        parallel=fields.parallel_tool_calls,
    )
    thought = fields.thinking()
    request = AgentRequest(
        model=fields.model or "",
        messages=tuple(fields.messages),
        tools=tools,
        template_args=thought.template_args,
        sampling=attrs.evolve(fields.sampling(), logprobs=_logprobs(fields)),
        max_tokens=_max_tokens(fields),
        stop=stop_strings(fields.stop),
        draft_tokens=draft_tokens(fields.flashrt_draft_tokens),
        thinking_tokens=thought.tokens,
        shape=structured.shape,
        reads_calls=structured.reads_calls,
        continues_last=_continues_last(fields),
        return_token_ids=bool(fields.flashrt_return_token_ids),
        pin_prefix=pin_prefix(fields.flashrt_pin_prefix),
        hints=fields.hints(),
    )
    return fields.call(request)


def _refuse_unsupported(fields: ChatFields) -> None:
    only("n", fields.n, (1,), "Ask several times for several answers.")
    only("functions", fields.functions, ([],), "Offer functions in `tools`.")
    only("modalities", fields.modalities, (["text"],), "This server answers in text.")


def _continues_last(fields: ChatFields) -> bool:
    """A last message of the assistant's own is gone on with, unless the client says no."""
    if fields.add_generation_prompt is False and not fields.continue_final_message:
        raise BadRequest(
            "`add_generation_prompt` false leaves nothing to answer; with "
            "`continue_final_message` true the last message is gone on with.",
            param="add_generation_prompt",
        )
    return fields.continue_final_message is not False


def _logprobs(fields: ChatFields) -> int | None:
    count = fields.top_logprobs or 0
    between("top_logprobs", count, 0, TOP_LOGPROBS_MAX)
    if count and not fields.logprobs:
        raise BadRequest(
            "`top_logprobs` needs `logprobs` to be true; set it, or leave both out.",
            param="top_logprobs",
        )
    return count if fields.logprobs else None


def _max_tokens(fields: ChatFields) -> int | None:
    """The newer name wins where a client sends both."""
    old = token_limit("max_tokens", fields.max_tokens)
    new = token_limit("max_completion_tokens", fields.max_completion_tokens)
    return old if new is None else new


def offered(tools: list[Tool] | None) -> tuple[Json, ...]:
    """The tools on offer, each checked; raises BadRequest that names one."""
    return tuple(_tool(tool, f"tools[{i}]") for i, tool in enumerate(tools or ()))


def _tool(tool: Tool, where: str) -> Json:
    if tool.type != "function" or tool.function is None:
        raise BadRequest(
            f'`{where}` is of type "{tool.type}"; only {{"type": "function", "function": '
            '{"name": ...}} is supported.',
            param=where,
        )
    name = tool.function.get("name")
    if not isinstance(name, str) or not re.fullmatch(TOOL_NAME, name):
        raise BadRequest(
            f"`{where}.function.name` must be a string of 1 to 256 characters without spaces, "
            '"<" or ">".',
            param=f"{where}.function.name",
        )
    if not isinstance(tool.function.get("parameters"), dict | None):
        raise BadRequest(
            f"`{where}.function.parameters` must be an object: a JSON schema.",
            param=f"{where}.function.parameters",
        )
    return {"type": "function", "function": tool.function}
