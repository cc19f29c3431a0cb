"""A conversation that ends inside a message of the assistant: the answer goes on from there."""

from collections.abc import Sequence
from typing import Any

from flashrt.chat.marked import Marked, private_characters, render_marked
from flashrt.chat.request import Json
from flashrt.chat.template import Template
from flashrt.errors import BadRequest


def without_empty_end(messages: Sequence[Json]) -> list[Json]:
    """Messages (normalised) without assistant's messages at the end in which nothing stands."""
    kept = list(messages)
    while len(kept) > 1 and kept[-1]["role"] == "assistant" and _is_empty(kept[-1]):
        kept.pop()
    return kept


def open_field(messages: Sequence[Json]) -> str | None:
    """Where an answer to these messages goes on: in the last one's text, or in its thinking.

    None: it is a message of its own. So it is behind calls, which only their results can follow.
    """
    last = messages[-1]
    if last["role"] != "assistant" or last.get("tool_calls"):
        return None
    if last["content"].strip():
        return "content"
    return "reasoning_content" if last.get("reasoning_content") else None


def render_open(template: Template, values: dict[str, Any], field: str) -> Marked:
    """Render up to the end of the last message's `field`, without what the template puts behind.

    A mark holds the place, so blanks at the end stay. Raises BadRequest for a template that does
    not show the field.
    """
    *before, last = values["messages"]
    (mark,) = private_characters(values, template.source, 1)
    messages = [*before, {**last, field: last[field] + mark}]
    marked = render_marked(
        template, {**values, "messages": messages, "add_generation_prompt": False}
    )
    if marked.text.count(mark) != 1:
        raise BadRequest(
            f"The model's chat template does not show `{field}` of the last message as it is, so "
            "an answer cannot go on from there. End with a user's message or a tool's result.",
            param=f"messages[{len(before)}].{field}",
        )
    return marked.up_to(mark)


def _is_empty(message: Json) -> bool:
    fields = ("tool_calls", "reasoning_content")
    return not message["content"].strip() and not any(message.get(field) for field in fields)
