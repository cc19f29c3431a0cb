"""A tool call's arguments: text that the model wrote, as JSON text that grows."""

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
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

    @property
    def names(self) -> Collection[str]:
        """The tools on offer."""
        return self._parameters.keys()

    def kinds(self, tool: str, parameter: str) -> frozenset[str]:
        """The JSON types that a parameter may have; only strings if nobody says."""
        schema = self._parameters.get(tool)
        if not isinstance(schema, Mapping):
            return STRING
        return _Schema(schema).kinds(parameter) or STRING


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


class _Schema:
    """What one tool says about its parameters.

    A schema may refer to itself, and many times: each part is looked at once.
    """

    def __init__(self, root: Mapping[str, Any]) -> None:
        self._root = root
        self._known: dict[int, frozenset[str]] = {}

    def kinds(self, parameter: str) -> frozenset[str]:
        """The types that a parameter may have; none if nothing is said."""
        found = list(self._describing(parameter, self._root, set(), DEPTH_MAX))
        if not found and isinstance(self._root.get("additionalProperties"), Mapping):
            found = [self._root["additionalProperties"]]
        return frozenset().union(*(self._kinds(one, DEPTH_MAX) for one in found))

    def _describing(self, parameter: str, schema: Any, seen: set[int], depth: int) -> Iterator[Any]:
        """What the properties of a schema and of its parts say about a parameter."""
        if not isinstance(schema, Mapping) or depth == 0 or id(schema) in seen:
            return
        seen.add(id(schema))
        properties = schema.get("properties")
        if isinstance(properties, Mapping) and parameter in properties:
            yield properties[parameter]
        for part in (*_options(schema), self._referred(schema.get("$ref"))):
            yield from self._describing(parameter, part, seen, depth - 1)

    def _kinds(self, schema: Any, depth: int) -> frozenset[str]:
        """The types that a schema allows; none if it does not say."""
        if not isinstance(schema, Mapping) or depth == 0:
            return frozenset()
        if id(schema) not in self._known:
            self._known[id(schema)] = frozenset()  # if it refers to itself, that says nothing
            kinds = self._said(schema, depth)
            if kinds and schema.get("nullable") is True:  # OpenAPI's word for it
                kinds |= {"null"}
            self._known[id(schema)] = kinds
        return self._known[id(schema)]

    def _said(self, schema: Mapping[str, Any], depth: int) -> frozenset[str]:
        if isinstance(schema.get("$ref"), str):
            return self._kinds(self._referred(schema["$ref"]), depth - 1)
        named = schema.get("type")
        if isinstance(named, str):
            return frozenset({named})
        if isinstance(named, list):
            return frozenset(kind for kind in named if isinstance(kind, str))
        if "const" in schema or isinstance(schema.get("enum"), list):
            values = [schema["const"]] if "const" in schema else schema["enum"]
            return frozenset(KIND_OF.get(type(value), "string") for value in values)
        options = _options(schema)
        if options:
            # An option that does not say may be a string.
            return frozenset().union(*(self._kinds(one, depth - 1) or STRING for one in options))
        if "properties" in schema:
            return frozenset({"object"})
        return frozenset({"array"} if "items" in schema else ())

    def _referred(self, reference: Any) -> Any:
        if not isinstance(reference, str):
            return None
        found: Any = self._root
        for name in reference.removeprefix("#").split("/")[1:]:
            name = name.replace("~1", "/").replace("~0", "~")
            found = found.get(name) if isinstance(found, Mapping) else None
        return found


def _options(schema: Mapping[str, Any]) -> list[Any]:
    options = [schema.get(union) for union in ("anyOf", "oneOf", "allOf")]
    return [option for found in options if isinstance(found, list) for option in found]
