"""Values typed by the tool's schema, as JSON text that grows."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flashrt.chat.arguments import STRING, ArgumentsText, ToolSchemas, typed

ALL_KINDS = ("string", "integer", "number", "boolean", "array", "object", "null")
KINDS = st.frozensets(st.sampled_from(ALL_KINDS), min_size=1)
JSON = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(),
        st.floats(allow_nan=False, allow_infinity=False),
        st.text(),
    ),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(), inner)),
    max_leaves=6,
)


def kinds(parameter: Any, **root: Any) -> frozenset[str]:
    """What a schema says about the parameter `p`."""
    schema = {"type": "object", "properties": {"p": parameter}, **root}
    tool = {"type": "function", "function": {"name": "f", "parameters": schema}}
    return ToolSchemas.of([tool]).kinds("f", "p")


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        ({"type": "string"}, {"string"}),
        ({"type": ["integer", "null"]}, {"integer", "null"}),
        ({"anyOf": [{"type": "array"}, {"type": "null"}]}, {"array", "null"}),
        ({"oneOf": [{"type": "number"}, {"description": "or so"}]}, {"number", "string"}),
        ({"allOf": [{"$ref": "#/$defs/a~1b"}]}, {"boolean"}),
        ({"$ref": "#/$defs/loop"}, {"string"}),
        ({"$ref": "#/$defs/missing"}, {"string"}),
        ({"$ref": "http://elsewhere/x"}, {"string"}),
        ({"enum": [1, 2.5, None]}, {"integer", "number", "null"}),
        ({"const": "x"}, {"string"}),
        ({"type": "integer", "nullable": True}, {"integer", "null"}),
        ({"nullable": True}, {"string"}),
        ({"properties": {}}, {"object"}),
        ({"items": {}}, {"array"}),
        ({}, {"string"}),
        (True, {"string"}),
        (None, {"string"}),
    ],
)
def test_the_types_of_a_parameter_are_read_from_its_schema(schema: Any, expected: set[str]):
    """Through unions, references and enumerations; a string where nobody says."""
    defs = {"a/b": {"type": "boolean"}, "loop": {"$ref": "#/$defs/loop"}}

    assert kinds(schema, **{"$defs": defs}) == expected


@pytest.mark.parametrize(
    "root",
    [
        {"$ref": "#/$defs/arguments"},
        {"allOf": [{"type": "object"}, {"$ref": "#/$defs/arguments"}]},
        {"properties": {"q": {}}, "anyOf": [{"properties": {"p": {"type": "integer"}}}]},
        {"properties": {"q": {}}, "additionalProperties": {"type": "integer"}},
        {"additionalProperties": {"$ref": "#/$defs/arguments/properties/p"}},
    ],
)
def test_a_parameter_is_found_wherever_the_schema_describes_it(root: dict[str, Any]):
    """In references and parts of the whole, or among those that have no name."""
    defs = {"arguments": {"properties": {"p": {"type": "integer"}}}}
    tool = {"name": "f", "parameters": {"$defs": defs, **root}}

    assert ToolSchemas.of([tool]).kinds("f", "p") == {"integer"}


def test_a_schema_that_refers_to_itself_everywhere_is_followed_to_an_end():
    """It says no more than it says once, and that in no time."""
    loops = [{"$ref": "#"}, {"$ref": "#/$defs/a"}] * 10
    defs = {"a": {"anyOf": loops}}
    tools = [
        {"name": "f", "parameters": {"allOf": loops, "$defs": defs}},
        {"name": "g", "parameters": {"properties": {"p": defs["a"]}, "$defs": defs}},
    ]

    assert ToolSchemas.of(tools).kinds("f", "p") == STRING
    assert "string" in ToolSchemas.of(tools).kinds("g", "p")


@pytest.mark.parametrize("tools", [[], [{"function": {"name": "f", "parameters": None}}], [{}]])
def test_without_a_schema_a_parameter_is_a_string(tools: list[Any]):
    """An unknown tool, or one that describes nothing."""
    assert ToolSchemas.of(tools).kinds("f", "p") == STRING


@pytest.mark.parametrize(
    ("text", "kind", "expected"),
    [
        ("02134", "string", "02134"),
        ("1e5", "string", "1e5"),
        ("true", "string", "true"),
        ("02134", "integer", "02134"),
        ("5", "integer", 5),
        ("5.0", "integer", 5),
        ("1e5", "integer", 100_000),
        ("5.5", "integer", "5.5"),
        ("true", "integer", "true"),
        ("-1.5e3", "number", -1500.0),
        ("NaN", "number", "NaN"),
        ("Infinity", "number", "Infinity"),
        ("1e999", "number", "1e999"),
        ("9" * 5000, "integer", "9" * 5000),
        ("true", "boolean", True),
        ("False", "boolean", False),
        ("yes", "boolean", "yes"),
        ("1", "boolean", "1"),
        (' ["a", 1]\n', "array", ["a", 1]),
        ('{"a": 1}', "array", '{"a": 1}'),
        ('{"a": NaN}', "object", '{"a": NaN}'),
        ("[" * 100_000, "array", "[" * 100_000),
        ("{'a': 1}", "object", "{'a': 1}"),
        ("null", "null", None),
        ("None", "null", None),
    ],
)
def test_a_value_that_does_not_fit_stays_a_string(text: str, kind: str, expected: Any):
    """Types come from the schema, never from how the text looks."""
    assert json.loads(typed(text, frozenset({kind}))) == expected


@pytest.mark.parametrize(
    ("text", "allowed", "expected"),
    [
        ("5", {"string", "integer"}, "5"),
        ("true", {"string", "boolean"}, "true"),
        ("null", {"string", "null"}, None),
        ("None", {"integer", "null"}, None),
        ('["a"]', {"string", "array"}, ["a"]),
        ("[a]", {"string", "array"}, "[a]"),
        ("5", {"integer", "boolean"}, 5),
    ],
)
def test_what_may_be_a_string_is_one(text: str, allowed: set[str], expected: Any):
    """Only null and whole structures are read out of it."""
    assert json.loads(typed(text, frozenset(allowed))) == expected


@given(JSON, KINDS)
def test_json_of_an_allowed_type_is_that_value(value: Any, allowed: frozenset[str]):
    """Where no string is allowed, a value's own JSON text is the value."""
    kind = {bool: "boolean", int: "integer", float: "number", str: "string"}.get(type(value))
    kind = kind or {list: "array", dict: "object", type(None): "null"}[type(value)]

    if kind != "string":
        assert json.loads(typed(json.dumps(value), frozenset({kind}))) == value


PARAMETERS = st.lists(st.tuples(st.text(max_size=3), KINDS, st.lists(st.text(max_size=5))))


@given(PARAMETERS)
def test_the_text_grows_to_one_json_object(parameters: list[tuple[str, frozenset[str], list[str]]]):
    """However the values are cut: no beginning of it is whole, and the end is."""
    arguments = ArgumentsText()
    grown = [arguments.open()]
    for name, allowed, chunks in parameters:
        grown += [arguments.name(name, allowed), *map(arguments.value, chunks)]
        grown.append(arguments.end_value())
    grown.append(arguments.close())

    expected = {n: json.loads(typed("".join(c), k)) for n, k, c in parameters}
    assert json.loads("".join(grown)) == expected
    for n in range(1, len(grown)):
        with pytest.raises(json.JSONDecodeError):
            json.loads("".join(grown[:n]))


@pytest.mark.parametrize("allowed", [{"string"}, {"string", "null"}])
def test_strings_stream(allowed: set[str]):
    """A long file is seen while it is written, also where the value may be null."""
    arguments = ArgumentsText()
    arguments.name("p", frozenset(allowed))

    assert arguments.value("no") + arguments.value('w "') == '"now \\"'


def test_what_may_become_null_waits():
    """Until it cannot any more."""
    arguments = ArgumentsText()
    arguments.name("p", frozenset({"string", "null"}))

    assert arguments.value("nul") == ""
    assert arguments.value("ls") == '"nulls'
