"""A tool call's arguments: text that the model wrote, as JSON text that grows."""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import attrs

from flashrt.chat.request import Json

STRING = frozenset({"string"})
NULLABLE_STRING = frozenset({"string", "null"})

DEPTH_MAX = 16
"""How far references and unions are followed; a schema may refer to itself."""

KIND_OF: dict[type, str] = {
    str: "string",
    bool: "boolean",
    int: "integer",
    float: "number",
    list: "array",
    dict: "object",
    type(None): "null",
}


@attrs.frozen
class ToolSchemas:
    """What the request's tools say about their parameters."""

    _parameters: Mapping[str, Any]

    @classmethod
    def of(cls, tools: Sequence[Json]) -> "ToolSchemas":
        """From tools in the OpenAI shape; what has no name is left out."""
        functions = [tool.get("function", tool) for tool in tools]
        return cls(
            {f["name"]: f.get("parameters") for f in functions if isinstance(f.get("name"), str)}
        )

    def kinds(self, tool: str, parameter: str) -> frozenset[str]:
        """The JSON types that a parameter may have; only strings if nobody says."""
        schema = self._parameters.get(tool)
        if not isinstance(schema, Mapping):
            return STRING
        properties = schema.get("properties")
        if not isinstance(properties, Mapping):
            return STRING
        return frozenset(_kinds(properties.get(parameter), schema, DEPTH_MAX)) or STRING


class ArgumentsText:
    """Writes one call's arguments. What each method returns is the next piece of the JSON text."""

    def __init__(self) -> None:
        self._any = False
        self._value = _Value(STRING)

    def open(self) -> str:
        """The beginning: from here on the text is no JSON until `close`."""
        return "{"

    def name(self, name: str, kinds: frozenset[str]) -> str:
        """A parameter begins."""
        separator = "," if self._any else ""
        self._any = True
        self._value = _Value(kinds)
        return f"{separator}{_quoted(name)}:"

    def value(self, text: str) -> str:
        """The parameter's text goes on. Nothing may come of it until its type is known."""
        return self._value.feed(text)

    def end_value(self) -> str:
        """The parameter's text is whole."""
        return self._value.close()

    def close(self) -> str:
        """The end."""
        return "}"


class _Value:
    """One parameter. Strings stream; everything else waits until it can be told whether it fits."""

    def __init__(self, kinds: frozenset[str]) -> None:
        self._kinds = kinds
        self._waiting = ""
        self._streams = kinds == STRING
        self._started = False

    def feed(self, text: str) -> str:
        self._waiting += text
        # A string that may be null is one as soon as it cannot become "null" any more.
        if self._kinds == NULLABLE_STRING and not "null".startswith(self._waiting.strip()):
            self._streams = True
        return self._streamed() if self._streams else ""

    def close(self) -> str:
        if self._streams:
            return self._streamed() + '"'
        return typed(self._waiting, self._kinds)

    def _streamed(self) -> str:
        opening = "" if self._started else '"'
        self._started = True
        text, self._waiting = self._waiting, ""
        return opening + _quoted(text)[1:-1]


def typed(text: str, kinds: frozenset[str]) -> str:
    """JSON text of a value that fits one of `kinds`; what fits none stays a string.

    A value that may be a string is one, unless it is null or whole JSON of an allowed structure:
    "02134" is no number where a string may stand.
    """
    fitting = kinds & {"null", "array", "object"} if "string" in kinds else kinds
    return next(_fits(text.strip(), fitting), None) or _quoted(text)


def _fits(text: str, kinds: frozenset[str]) -> Iterator[str]:
    lowered = text.lower()
    if "boolean" in kinds and lowered in ("true", "false"):
        yield lowered
    if "null" in kinds and text in ("null", "None"):
        yield "null"
    try:
        value = json.loads(text, parse_constant=_refuse)
    except (ValueError, RecursionError):
        return
    kind = KIND_OF[type(value)]
    if kind == "number" and value in (float("inf"), float("-inf")):
        return
    if kind in kinds or (kind == "integer" and "number" in kinds):
        yield text
    elif kind == "number" and "integer" in kinds and value.is_integer():
        yield str(int(value))


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is no JSON")


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _kinds(schema: Any, root: Mapping[str, Any], depth: int) -> set[str]:
    """The types that a schema allows; empty if it does not say."""
    if not isinstance(schema, Mapping) or depth == 0:
        return set()
    if isinstance(schema.get("$ref"), str):
        return _kinds(_referred(schema["$ref"], root), root, depth - 1)
    named = schema.get("type")
    if isinstance(named, str):
        return {named}
    if isinstance(named, list):
        return {kind for kind in named if isinstance(kind, str)}
    if "const" in schema or isinstance(schema.get("enum"), list):
        values = [schema["const"]] if "const" in schema else schema["enum"]
        return {KIND_OF.get(type(value), "string") for value in values}
    options = [schema.get(union) for union in ("anyOf", "oneOf", "allOf")]
    listed = [option for found in options if isinstance(found, list) for option in found]
    if listed:
        # An option that does not say may be a string.
        return set().union(*(_kinds(option, root, depth - 1) or STRING for option in listed))
    if "properties" in schema:
        return {"object"}
    return {"array"} if "items" in schema else set()


def _referred(reference: str, root: Mapping[str, Any]) -> Any:
    found: Any = root
    for name in reference.removeprefix("#").split("/")[1:]:
        name = name.replace("~1", "/").replace("~0", "~")
        found = found.get(name) if isinstance(found, Mapping) else None
    return found
