"""What the generator makes: a task with its answer, and a dialogue of messages."""

from typing import Any

import attrs

Json = dict[str, Any]


@attrs.frozen
class Task:
    """One thing asked for, done by one call."""

    ask: str
    """In the words of an order: 'read the file x'."""
    tool: Json
    """The function that does it, as a client offers it."""
    arguments: Json
    result: str
    """What the tool says."""
    answer: str
    kind: str = ""
    """What the tool is for: no two tools of one kind are offered together."""
    order: bool = True
    """The wording begins with a verb, so that "please" may stand before it."""


@attrs.define
class Dialogue:
    """As a request holds it, answers included."""

    tools: list[Json] = attrs.field(factory=list)
    messages: list[Json] = attrs.field(factory=list)
    thinking: bool = False


def function(name: str, description: str, properties: Json, required: list[str]) -> Json:
    """A tool as clients offer it."""
    schema = {"type": "object", "properties": properties, "required": required}
    body = {"name": name, "description": description, "parameters": schema}
    return {"type": "function", "function": body}


def name_of(tool: Json) -> str:
    """Of its function."""
    return str(tool["function"]["name"])
