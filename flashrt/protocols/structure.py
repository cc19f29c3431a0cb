"""What the answer must look like: `response_format`, `tool_choice`, `parallel_tool_calls`."""

from collections.abc import Sequence
from typing import Any

import attrs
import msgspec

from flashrt.chat.request import Json
from flashrt.chat.shape import AnswerShape, CallShape, JsonShape, OneCall
from flashrt.errors import BadRequest
from flashrt.protocols.fields import shown

SCHEMA_FIELD = "response_format.json_schema.schema"


class JsonSchemaFormat(msgspec.Struct):
    """`response_format.json_schema`. The schema is always enforced, so `strict` says no more."""

    name: str | None = None
    description: str | None = None
    schema: dict[str, Any] | None = None
    strict: bool | None = None


class ResponseFormat(msgspec.Struct):
    """`response_format`."""

    type: str
    json_schema: JsonSchemaFormat | None = None


@attrs.frozen
class Structure:
    """The wishes of one request, checked: the answer's shape, and whether calls are read."""

    shape: AnswerShape | None
    reads_calls: bool


def structure(
    tools: Sequence[Json],
    *,
    response_format: ResponseFormat | None,
    tool_choice: str | Json | None,
    parallel: bool | None,
) -> Structure:
    """Bring the three together; raises BadRequest for what contradicts itself or is unknown."""
    value = None if response_format is None else _value(response_format)
    forced = _forced(tools, tool_choice, parallel=parallel is not False)
    if forced is not None and value is not None:
        raise BadRequest(
            "`response_format` asks for JSON text and `tool_choice` for a call; an answer cannot "
            'be both. Leave one out, or use `tool_choice` "auto".',
            param="response_format",
        )
    may_call = tool_choice != "none"
    return together(tools, forced, value, may_call=may_call, parallel=parallel is not False)


def together(
    tools: Sequence[Json],
    forced: CallShape | None,
    value: JsonShape | None,
    *,
    may_call: bool,
    parallel: bool,
) -> Structure:
    """The wishes of any protocol as one, of which `forced` and `value` are not both there."""
    reads_calls = bool(tools) and may_call
    if forced is not None or not reads_calls:
        return Structure(forced or value, reads_calls)
    if value is not None:
        functions = tuple(tool["function"] for tool in tools)
        return Structure(attrs.evolve(value, calls=CallShape(functions, parallel)), reads_calls)
    return Structure(None if parallel else OneCall(), reads_calls)


def _value(wish: ResponseFormat) -> JsonShape | None:
    match wish.type:
        case "text":
            return None
        case "json_object":
            return JsonShape({"type": "object"}, "response_format")
        case "json_schema":
            schema = None if wish.json_schema is None else wish.json_schema.schema
            if schema is None:
                raise BadRequest(f"`{SCHEMA_FIELD}` is required.", param=SCHEMA_FIELD)
            return JsonShape(schema, SCHEMA_FIELD)
    raise BadRequest(
        f'`response_format.type` is "{wish.type}"; it must be text, json_object or json_schema.',
        param="response_format.type",
    )


def _forced(
    tools: Sequence[Json], choice: str | Json | None, *, parallel: bool
) -> CallShape | None:
    """The calls that the answer must be; None where it may be text."""
    match choice:
        case None | "auto" | "none":
            return None
        case "required":
            functions = tuple(tool["function"] for tool in tools)
            if not functions:
                raise BadRequest(
                    '`tool_choice` is "required", but `tools` offers none.', param="tool_choice"
                )
            return CallShape(functions, parallel)
        case {"type": "function", "function": {"name": str(name)}}:
            # A named function is called once, as elsewhere.
            return CallShape((_named(tools, name),), parallel=False)
    raise BadRequest(
        f'`tool_choice` = {shown(choice)} is not supported. It must be "none", "auto", '
        '"required" or {"type": "function", "function": {"name": ...}}.',
        param="tool_choice",
    )


def _named(tools: Sequence[Json], name: str) -> Json:
    for tool in tools:
        if tool["function"]["name"] == name:
            function: Json = tool["function"]
            return function
    offered = ", ".join(tool["function"]["name"] for tool in tools) or "none"
    raise BadRequest(
        f'`tool_choice.function.name` is "{name}", which is not among `tools` ({offered}).',
        param="tool_choice.function.name",
    )
