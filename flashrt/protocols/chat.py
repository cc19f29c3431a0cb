"""Chat Completions requests: JSON to `AgentRequest`."""

import re
from typing import Any

import msgspec

from flashrt.chat.request import AgentRequest, Json
from flashrt.errors import BadRequest
from flashrt.protocols.fields import (
    Call,
    CommonFields,
    draft_tokens,
    only,
    read_json,
    stop_strings,
    token_limit,
)

TEMPLATE_ARGS_TAKEN = frozenset(
    {"messages", "tools", "chat_template", "add_generation_prompt", "tokenize", "return_dict"}
)
"""Names that the server fills in itself; `chat_template_kwargs` may not replace them."""


class Tool(msgspec.Struct):
    """A tool on offer. The function stays as the client wrote it: the template shows all of it."""

    function: dict[str, Any] | None = None
    type: str = "function"


class ResponseFormat(msgspec.Struct):
    """`response_format`."""

    type: str


class ChatFields(CommonFields, kw_only=True):
    """The fields of a Chat Completions request. `chat.messages` reads the messages themselves."""

    messages: list[dict[str, Any]]
    tools: list[Tool] | None = None
    tool_choice: str | dict[str, Any] | None = None
    max_completion_tokens: int | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    enable_thinking: bool | None = None
    response_format: ResponseFormat | None = None
    logprobs: bool | None = None
    top_logprobs: int | None = None
    functions: list[Any] | None = None
    modalities: list[str] | None = None


_DECODER = msgspec.json.Decoder(ChatFields)


def read_chat(body: bytes) -> Call:
    """Translate a Chat Completions body; raises BadRequest with the path of what is wrong."""
    fields = read_json(body, _DECODER)
    _refuse_unsupported(fields)
    if not fields.messages:
        raise BadRequest("`messages` is empty; it needs at least one message.", param="messages")
    request = AgentRequest(
        model=fields.model or "",
        messages=tuple(fields.messages),
        tools=_tools(fields),
        template_args=_template_args(fields),
        sampling=fields.sampling(),
        max_tokens=_max_tokens(fields),
        stop=stop_strings(fields.stop),
        draft_tokens=draft_tokens(fields.flashrt_draft_tokens),
        return_token_ids=bool(fields.flashrt_return_token_ids),
        hints=fields.hints(),
    )
    return fields.call(request)


def _refuse_unsupported(fields: ChatFields) -> None:
    only("n", fields.n, (1,), "Ask several times for several answers.")
    only("logprobs", fields.logprobs, (False,), "Leave it out.")
    only("top_logprobs", fields.top_logprobs, (0,), "Leave it out.")
    only("functions", fields.functions, ([],), "Offer functions in `tools`.")
    only("modalities", fields.modalities, (["text"],), "This server answers in text.")
    if fields.response_format is not None and fields.response_format.type != "text":
        raise BadRequest(
            f'`response_format` of type "{fields.response_format.type}" is not supported; '
            'only {"type": "text"} is.',
            param="response_format",
        )


def _max_tokens(fields: ChatFields) -> int | None:
    """The newer name wins where a client sends both."""
    old = token_limit("max_tokens", fields.max_tokens)
    new = token_limit("max_completion_tokens", fields.max_completion_tokens)
    return old if new is None else new


def _template_args(fields: ChatFields) -> Json:
    args = dict(fields.chat_template_kwargs or {})
    for name in sorted(TEMPLATE_ARGS_TAKEN & args.keys()):
        raise BadRequest(
            f"`chat_template_kwargs.{name}` is filled in by the server; leave it out.",
            param=f"chat_template_kwargs.{name}",
        )
    if fields.enable_thinking is not None:
        args["enable_thinking"] = fields.enable_thinking
    return args


def _tools(fields: ChatFields) -> tuple[Json, ...]:
    """The tools on offer: none of them where `tool_choice` is "none"."""
    choice = fields.tool_choice
    if choice not in (None, "auto", "none"):
        shown = choice if isinstance(choice, str) else msgspec.json.encode(choice).decode()
        raise BadRequest(
            f'`tool_choice` = {shown} is not supported yet; "auto" and "none" are.',
            param="tool_choice",
        )
    tools = tuple(_tool(t, f"tools[{i}]") for i, t in enumerate(fields.tools or ()))
    return () if choice == "none" else tools


def _tool(tool: Tool, where: str) -> Json:
    if tool.type != "function" or tool.function is None:
        raise BadRequest(
            f'`{where}` is of type "{tool.type}"; only {{"type": "function", "function": '
            '{"name": ...}} is supported.',
            param=where,
        )
    name = tool.function.get("name")
    # The model writes the name inside a tag, from which it must be readable again.
    if not isinstance(name, str) or not re.fullmatch(r"[^\s<>]{1,256}", name):
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
