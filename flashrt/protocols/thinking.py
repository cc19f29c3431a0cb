"""How much the model may think: the fields of several servers, brought together."""

from typing import Any

import attrs
import msgspec

from flashrt.chat.request import Json
from flashrt.chat.thinking import effort
from flashrt.errors import BadRequest

TEMPLATE_ARGS_TAKEN = frozenset(
    {"messages", "tools", "chat_template", "add_generation_prompt", "tokenize", "return_dict"}
)
"""Names that the server fills in itself; `chat_template_kwargs` may not replace them."""


class Reasoning(msgspec.Struct):
    """`reasoning`, as routers have it."""

    effort: str | None = None
    max_tokens: int | None = None
    enabled: bool | None = None


@attrs.frozen
class Thinking:
    """What the template is told, and how many ids a think block may have."""

    template_args: Json
    tokens: int | None


def thinking(
    *,
    template_kwargs: dict[str, Any] | None,
    enable_thinking: bool | None,
    reasoning_effort: str | None,
    reasoning: Reasoning | None,
    thinking_budget: int | None,
) -> Thinking:
    """What is said more plainly wins: a switch over an effort, a number over what a word means."""
    asked = reasoning or Reasoning()
    args: Json = {}
    tokens = None
    for word, param in ((reasoning_effort, "reasoning_effort"), (asked.effort, "reasoning.effort")):
        if word is not None:
            meant = effort(word, param)
            args, tokens = dict(meant.template_args), meant.thinking_tokens
    for limit, param in (
        (thinking_budget, "thinking_budget"),
        (asked.max_tokens, "reasoning.max_tokens"),
    ):
        if limit is not None:
            if limit < 0:
                raise BadRequest(f"`{param}` is {limit}; it must be at least 0.", param=param)
            tokens = limit
            args["enable_thinking"] = limit > 0
    for name in sorted(TEMPLATE_ARGS_TAKEN & (template_kwargs or {}).keys()):
        raise BadRequest(
            f"`chat_template_kwargs.{name}` is filled in by the server; leave it out.",
            param=f"chat_template_kwargs.{name}",
        )
    if asked.enabled is not None:
        args["enable_thinking"] = asked.enabled
    args |= template_kwargs or {}
    if enable_thinking is not None:
        args["enable_thinking"] = enable_thinking
    return Thinking(args, tokens)
