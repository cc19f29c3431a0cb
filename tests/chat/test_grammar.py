"""Shapes as grammars over the demo's vocabulary."""

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flashrt.chat.grammar import BYTES_OF_CHARACTER, GRAMMAR_BYTES, Grammars
from flashrt.chat.shape import CallShape, JsonShape
from flashrt.chat.tokenizer import Tokenizer
from flashrt.demo import DEMO_PATH
from flashrt.engine.assets import read_stop_ids
from flashrt.errors import BadRequest

TOKENIZER = Tokenizer.load(DEMO_PATH)
STOPS = read_stop_ids(DEMO_PATH)
VOCAB = TOKENIZER.vocab_size + 100
GRAMMARS = Grammars(TOKENIZER, VOCAB, STOPS)

READ = {
    "name": "read_file",
    "parameters": {
        "type": "object",
        "properties": {
            "path": {"type": "string"},
            "limit": {"type": "integer"},
            "mode": {"enum": ["text", "bytes"]},
            "spans": {"type": "array", "items": {"$ref": "#/$defs/span"}},
        },
        "required": ["path"],
        "$defs": {"span": {"type": "object", "properties": {"from": {"type": "integer"}}}},
    },
}
RUN = {"name": "run", "parameters": {"type": "object", "properties": {}}}


def call(inner: str) -> list[int]:
    """The ids of one call in the wire format."""
    body = TOKENIZER.encode_text(f"\n{inner}</function>\n")
    return [TOKENIZER.control["<tool_call>"], *body, TOKENIZER.control["</tool_call>"]]


def fits(shape, ids) -> bool:
    """Whether the ids are a whole answer of the shape."""
    matcher = GRAMMARS.compile(shape)
    return matcher.take(ids) == len(ids) and matcher.complete


@pytest.mark.parametrize(
    ("inner", "whole"),
    [
        ("<function=read_file>\n<parameter=path>\na.py\n</parameter>\n", True),
        ("<function=read_file>\n<parameter=path>\n</parameter> a < b\n\n\n</parameter>\n", True),
        (
            "<function=read_file>\n<parameter=path>\na\n</parameter>\n"
            "<parameter=limit>\n12\n</parameter>\n",
            True,
        ),
        (
            "<function=read_file>\n<parameter=path>\na\n</parameter>\n"
            '<parameter=spans>\n[{"from": 1}]\n</parameter>\n',
            True,
        ),
        (
            "<function=read_file>\n<parameter=path>\na\n</parameter>\n"
            "<parameter=mode>\nbytes\n</parameter>\n",
            True,
        ),
        (
            "<function=read_file>\n<parameter=path>\na\n</parameter>\n"
            "<parameter=mode>\nlines\n</parameter>\n",
            False,
        ),
        ("<function=read_file>\n<parameter=limit>\n12\n</parameter>\n", False),
        (
            "<function=read_file>\n<parameter=path>\na\n</parameter>\n"
            "<parameter=limit>\nmany\n</parameter>\n",
            False,
        ),
        ("<function=remove>\n", False),
        ("<function=run>\n", True),
    ],
)
def test_a_call_has_a_known_name_its_required_parameters_and_their_types(inner, whole):
    """What the reader will read back is what the schema asks for."""
    assert fits(CallShape((READ, RUN)), call(inner)) is whole


def test_several_calls_only_where_parallel_calls_are_allowed():
    """`parallel_tool_calls: false` means one."""
    two = [*call("<function=run>\n"), *TOKENIZER.encode_text("\n"), *call("<function=run>\n")]
    assert fits(CallShape((RUN,)), two)
    assert not fits(CallShape((RUN,), parallel=False), two)


@pytest.mark.parametrize(
    ("schema", "value", "whole"),
    [
        ({"type": "object"}, {"a": [1, None, "x"]}, True),
        ({"type": "object"}, [1], False),
        (
            {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]},
            {},
            False,
        ),
        ({"enum": ["red", "green"]}, "green", True),
        ({"enum": ["red", "green"]}, "blue", False),
        ({"anyOf": [{"type": "null"}, {"type": "string"}]}, None, True),
    ],
)
def test_text_is_a_value_of_its_schema(schema, value, whole):
    """A complete value fits; another one does not."""
    ids = TOKENIZER.encode_text(json.dumps(value))
    assert fits(JsonShape(schema, "response_format"), ids) is whole


def test_where_the_shape_is_complete_only_a_stop_may_follow():
    """The answer ends by itself, with any of the model's stop ids."""
    matcher = GRAMMARS.compile(JsonShape({"enum": ["red"]}, "response_format"))
    assert not matcher.allowed()[list(STOPS)].any()
    ids = TOKENIZER.encode_text('"red"')
    assert matcher.take(ids) == len(ids)
    assert set(np.flatnonzero(matcher.allowed())) == STOPS


def test_ids_that_belong_to_no_token_are_never_allowed():
    """The engine's vocabulary is padded."""
    allowed = GRAMMARS.compile(JsonShape({}, "response_format")).allowed()
    assert allowed.shape == (VOCAB,)
    assert allowed.dtype == np.bool_
    assert not allowed[TOKENIZER.vocab_size :].any()


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "object", "properties": {"a": {"not": {"type": "string"}}}},
        {"$ref": "#/$defs/nowhere"},
        {"type": "triangle"},
    ],
)
def test_what_cannot_be_enforced_is_refused_by_name(schema):
    """Never ignored: a client that asks for a shape relies on it."""
    with pytest.raises(BadRequest, match="refused rather than ignored") as refusal:
        GRAMMARS.compile(JsonShape(schema, "response_format.json_schema.schema"))
    assert refusal.value.param == "response_format.json_schema.schema"


def test_one_answer_does_not_move_another_of_the_same_shape():
    """Compiled grammars are shared, places in them are not."""
    shape = JsonShape({"enum": ["red"]}, "response_format")
    one, other = GRAMMARS.compile(shape), GRAMMARS.compile(shape)
    one.take(TOKENIZER.encode_text('"red"'))
    assert one.complete
    assert not other.complete


@pytest.mark.parametrize(
    ("text", "whole"), [("abc", True), ("abcd", False), ("", True), ("a\nb", True)]
)
def test_a_bounded_text_of_a_call_is_bounded(text, whole):
    """`maxLength` counts, so that even noise comes to the closing tag."""
    bounded = {"name": "f", "parameters": {"properties": {"x": {"type": "string", "maxLength": 3}}}}
    ids = call(f"<function=f>\n<parameter=x>\n{text}\n</parameter>\n")
    assert fits(CallShape((bounded,)), ids) is whole


@pytest.mark.parametrize(
    ("blanks", "whole"),
    [("", True), (" ", True), ("  ", False), ("\n" + 24 * " ", True), ("\n" + 25 * " ", False),
     ("\n\t", True), ("\n\n", False), (" \n", False)],
)  # fmt: skip
def test_blanks_in_json_come_to_an_end(blanks, whole):
    """A weak model likes to indent for ever: one blank, or one new line and its indent."""
    ids = TOKENIZER.encode_text("[" + blanks + "1]")
    assert fits(JsonShape({"type": "array"}, "response_format"), ids) is whole


@pytest.mark.parametrize(
    ("text", "whole"), [('"red"', True), (None, True), ('"blue"', False), ('"red" ', False)]
)
def test_beside_json_a_call_may_come_instead(text, whole):
    """One or the other."""
    ids = call("<function=run>\n") if text is None else TOKENIZER.encode_text(text)
    assert fits(JsonShape({"enum": ["red"]}, "response_format", CallShape((RUN,))), ids) is whole


@pytest.mark.parametrize("parameters", [{"required": 5}, {"properties": ["x"]}])
def test_parameters_that_are_no_schema_are_refused(parameters):
    """A 400, not a crash."""
    with pytest.raises(BadRequest, match="no JSON schema"):
        GRAMMARS.compile(CallShape(({"name": "f", "parameters": parameters},)))


def test_a_client_cannot_set_the_compilers_own_options():
    """They could make it ignore what it cannot enforce."""
    schema = {"type": "array", "uniqueItems": True, "x-guidance": {"lenient": True}}
    with pytest.raises(BadRequest):
        GRAMMARS.compile(JsonShape(schema, "response_format"))


WHEN = {"$defs": {"day": {"type": "integer", "minimum": 1, "maximum": 31}}}


@pytest.mark.parametrize(
    ("value", "text", "whole"),
    [
        ({"$ref": "#/$defs/day"}, "31", True),
        ({"$ref": "#/$defs/day"}, "32", False),
        ({"anyOf": [{"type": "integer"}, {"type": "null"}]}, "null", True),
        ({"anyOf": [{"type": "integer"}, {"type": "null"}]}, "soon", False),
        ({"type": ["integer", "null"]}, "soon", False),
        ({"type": ["string", "null"]}, "soon", True),
        ({"const": "today"}, "today", True),
        ({"const": "today"}, "soon", False),
        ({"const": 3}, "3", True),
        ({"const": 3}, "4", False),
        ({"enum": [1, "x"]}, "any text", True),
        ({}, "any text", True),
    ],
)
def test_what_cannot_be_a_string_is_json_of_its_schema(value, text, whole):
    """Also where the schema says so by reference or by a union."""
    function = {"name": "f", "parameters": {**WHEN, "properties": {"x": value}}}
    ids = call(f"<function=f>\n<parameter=x>\n{text}\n</parameter>\n")
    assert fits(CallShape((function,)), ids) is whole


@pytest.mark.parametrize("strict", [True, False])
def test_a_strict_function_has_no_wish_that_is_ignored(strict):
    """In a text only choices and the greatest length are enforced."""
    properties = {"x": {"type": "string", "pattern": "^a+$"}}
    shape = CallShape(({"name": "f", "parameters": {"properties": properties}, "strict": strict},))
    if not strict:
        GRAMMARS.compile(shape)
        return
    with pytest.raises(BadRequest, match="`pattern`") as refusal:
        GRAMMARS.compile(shape)
    assert refusal.value.param == "tools"


def test_a_refusal_quotes_no_grammar():
    """The client wrote a schema and is told about that."""
    with pytest.raises(BadRequest) as refusal:
        GRAMMARS.compile(JsonShape({"type": "triangle"}, "response_format"))
    assert refusal.value.message.endswith("failed to compile JSON schema: Invalid type: triangle")


def test_a_matcher_that_has_given_up_fails_instead_of_ending_the_answer():
    """Better an error than half a value that says it is whole."""
    matcher = GRAMMARS.compile(JsonShape({"enum": ["red"]}, "response_format"))
    matcher._matcher.consume_token(TOKENIZER.encode_text("x")[0])
    with pytest.raises(AssertionError):
        matcher.allowed()


@pytest.mark.parametrize("where", ["json", "call"])
def test_a_schema_that_is_only_ever_itself_is_refused(where):
    """No value fits it; an answer would come to a dead end half-way."""
    schema = {
        "$defs": {"a": {"$ref": "#/$defs/a"}},
        "properties": {"x": {"type": "array", "items": {"$ref": "#/$defs/a"}}},
    }
    function = {"name": "f", "parameters": schema}
    shape = JsonShape(schema, "response_format") if where == "json" else CallShape((function,))
    with pytest.raises(BadRequest, match="refers to itself") as refusal:
        GRAMMARS.compile(shape)
    assert refusal.value.param == ("tools" if where == "call" else "response_format")


scalars = st.sampled_from(
    [
        {"type": "string", "maxLength": 3},
        {"type": "integer", "minimum": -9, "maximum": 99},
        {"type": "boolean"},
        {"type": "null"},
        {"enum": ["a", 1, None]},
        {"const": "b"},
    ]
)


def objects(inner):
    """Objects of one or two fields, the first of them required."""
    return st.dictionaries(st.sampled_from("xy"), inner, min_size=1).map(
        lambda fields: {
            "type": "object",
            "properties": fields,
            "required": list(fields)[:1],
            "additionalProperties": False,
        }
    )


schemas = st.recursive(
    scalars,
    lambda inner: (
        objects(inner)
        | inner.map(lambda items: {"type": "array", "items": items, "maxItems": 2})
        | st.tuples(inner, inner).map(lambda two: {"anyOf": list(two)})
    ),
    max_leaves=4,
)


def is_value(value, schema) -> bool:
    """Whether a value fits a schema of `schemas`."""
    if "anyOf" in schema:
        return any(is_value(value, one) for one in schema["anyOf"])
    if "enum" in schema or "const" in schema:
        choices = schema.get("enum", [schema.get("const")])
        return any(type(value) is type(one) and value == one for one in choices)
    match schema["type"], value:
        case "object", dict():
            fields = schema["properties"]
            return set(schema["required"]) <= value.keys() <= fields.keys() and all(
                is_value(one, fields[name]) for name, one in value.items()
            )
        case "array", list():
            return len(value) <= 2 and all(is_value(one, schema["items"]) for one in value)
        case "string", str():
            return len(value) <= 3
        case "boolean", bool():
            return True
        case "integer", int():
            return not isinstance(value, bool) and -9 <= value <= 99
    return schema["type"] == "null" and value is None


@given(schemas, st.integers(0, 2**32 - 1))
@settings(max_examples=40, deadline=None)
def test_whatever_noise_chooses_inside_the_limits_is_a_value(schema, seed):
    """And there is always something to choose, up to a stop."""
    noise = np.random.default_rng(seed)
    matcher = GRAMMARS.compile(JsonShape(schema, "response_format"))
    ids: list[int] = []
    while True:
        allowed = np.flatnonzero(matcher.allowed())
        if matcher.complete and set(allowed) & STOPS:
            break
        ids.append(int(noise.choice(allowed)))
        assert matcher.take(ids[-1:]) == 1
    assert is_value(json.loads(TOKENIZER.decode(ids)), schema)


def object_of(name: str, length: int = 1) -> JsonShape:
    """A shape whose grammar is about as long as its names."""
    return JsonShape({"type": "object", "properties": {name * length: {}}}, "response_format")


def test_kept_grammars_are_bounded_by_their_bytes():
    """However many shapes clients think of; one that is larger than the whole room is compiled
    for its request and pushes nobody out."""
    room = 4 * GRAMMAR_BYTES
    grammars = Grammars(TOKENIZER, VOCAB, STOPS, bytes_max=room)
    for number in range(12):
        grammars.compile(object_of(f"field {number}"))
        assert 0 < grammars.held_bytes <= room
    held = grammars.held_bytes
    large = grammars.compile(object_of("x", room // BYTES_OF_CHARACTER))
    assert large.take(TOKENIZER.encode_text("{}")) > 0
    assert grammars.held_bytes == held
    grammars.compile(object_of("field 11"))
    assert grammars.held_bytes == held


def test_a_kept_grammar_is_not_moved_by_an_answer():
    """Each answer begins at the start of its shape, the first one's moves undone or not."""
    shape = object_of("moved")
    first = GRAMMARS.compile(shape)
    start = first.allowed()
    assert first.take(TOKENIZER.encode_text("{")) == 1
    assert np.array_equal(GRAMMARS.compile(shape).allowed(), start)
