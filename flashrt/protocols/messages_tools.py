"""Tools, the choice among them, and structured output, as a Messages request says them."""

import re
from collections.abc import Sequence
from typing import Any

import msgspec

from flashrt.chat.request import Json
from flashrt.chat.shape import CallShape, JsonShape
from flashrt.errors import BadRequest
from flashrt.protocols.chat import TOOL_NAME
from flashrt.protocols.structure import Structure, together


class ToolChoice(msgspec.Struct):
    """`tool_choice`."""

    type: str
    name: str | None = None
    disable_parallel_tool_use: bool | None = None


class OutputFormat(msgspec.Struct):
    """`output_config.format`, or the older `output_format`. The schema is always enforced."""

    type: str
    schema: dict[str, Any] | None = None


def offered(tools: Sequence[Json]) -> tuple[Json, ...]:
    """The tools that the client runs, as functions; raises BadRequest that names one.

    Those with a type of their own are run by another server, or have no schema here: the model is
    not told of them.
    """
    return tuple(
        _function(tool, f"tools[{i}]")
        for i, tool in enumerate(tools)
        if tool.get("type") in (None, "custom")
    )


def _function(tool: Json, where: str) -> Json:
    name, description, schema = (tool.get(f) for f in ("name", "description", "input_schema"))
    if not isinstance(name, str) or not re.fullmatch(TOOL_NAME, name):
        raise BadRequest(
            f'`{where}.name` must be a string of 1 to 256 characters without spaces, "<" or ">".',
            param=f"{where}.name",
        )
    if not isinstance(schema, dict | None):
        raise BadRequest(
            f"`{where}.input_schema` must be an object: a JSON schema.",
            param=f"{where}.input_schema",
        )
    if not isinstance(description, str | None):
        raise BadRequest(f"`{where}.description` must be a string.", param=f"{where}.description")
    given = {"description": description, "parameters": schema}
    told = {field: value for field, value in given.items() if value is not None}
    return {"type": "function", "function": {"name": name, **told}}


def structure(
    tools: Sequence[Json], choice: ToolChoice | None, wish: OutputFormat | None, field: str
) -> Structure:
    """What the answer must look like; `field` has the format. Raises BadRequest."""
    choice = choice or ToolChoice("auto")
    parallel = not choice.disable_parallel_tool_use
    value = None if wish is None else _value(wish, field)
    forced = _forced(tools, choice, parallel=parallel)
    if forced is not None and value is not None:
        raise BadRequest(
            f"`{field}` asks for JSON text and `tool_choice` for a call; an answer cannot be both. "
            'Leave one out, or use `tool_choice` {"type": "auto"}.',
            param=field,
        )
    return together(tools, forced, value, may_call=choice.type != "none", parallel=parallel)


def _value(wish: OutputFormat, field: str) -> JsonShape:
    if wish.type != "json_schema":
        raise BadRequest(
            f'`{field}.type` is "{wish.type}"; it must be json_schema.', param=f"{field}.type"
        )
    if wish.schema is None:
        raise BadRequest(f"`{field}.schema` is required.", param=f"{field}.schema")
    return JsonShape(wish.schema, f"{field}.schema")


def _forced(tools: Sequence[Json], choice: ToolChoice, *, parallel: bool) -> CallShape | None:
    """The calls that the answer must be; None where it may be text."""
    match choice.type:
        case "auto" | "none":
            return None
        case "any" if tools:
            return CallShape(_functions(tools), parallel)
        case "any":
            raise BadRequest(
                '`tool_choice.type` is "any", but `tools` offers none that the client runs.',
                param="tool_choice.type",
            )
        case "tool":
            # A named tool is called once, as elsewhere.
            return CallShape((_named(tools, choice.name),), parallel=False)
    raise BadRequest(
        f'`tool_choice.type` is "{choice.type}"; it must be auto, any, tool or none.',
        param="tool_choice.type",
    )


def _named(tools: Sequence[Json], name: str | None) -> Json:
    functions = _functions(tools)
    for function in functions:
        if function["name"] == name:
            return function
    names = ", ".join(function["name"] for function in functions) or "none"
    raise BadRequest(
        f'`tool_choice.name` is "{name}", which is not among `tools` ({names}).',
        param="tool_choice.name",
    )


def _functions(tools: Sequence[Json]) -> tuple[Json, ...]:
    return tuple(tool["function"] for tool in tools)
