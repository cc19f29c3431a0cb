"""Wishes about the answer's shape: what they mean together, and what is refused."""

import json

import pytest

from flashrt.chat.shape import CallShape, JsonShape, OneCall
from flashrt.errors import BadRequest
from flashrt.protocols.chat import read_chat

F = {"name": "f", "parameters": {"type": "object"}}
G = {"name": "g"}
TOOLS = [{"type": "function", "function": F}, {"type": "function", "function": G}]
NAMED = {"type": "function", "function": {"name": "g"}}
SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}}
FORMAT = {"type": "json_schema", "json_schema": {"name": "n", "schema": SCHEMA, "strict": True}}
WHERE = "response_format.json_schema.schema"


def shape(**fields):
    """The shape of a request with these fields, and whether calls are read."""
    body = {"messages": [{"role": "user", "content": "hi"}], **fields}
    request = read_chat(json.dumps(body).encode()).request
    return request.shape, request.reads_calls


@pytest.mark.parametrize(
    ("fields", "wanted", "reads_calls"),
    [
        ({}, None, False),
        ({"tools": TOOLS}, None, True),
        ({"tools": TOOLS, "tool_choice": "auto", "parallel_tool_calls": True}, None, True),
        ({"tools": TOOLS, "tool_choice": "none"}, None, False),
        ({"tools": TOOLS, "tool_choice": "none", "parallel_tool_calls": False}, None, False),
        ({"tools": TOOLS, "parallel_tool_calls": False}, OneCall(), True),
        ({"tools": [], "parallel_tool_calls": False}, None, False),
        ({"tools": TOOLS, "tool_choice": "required"}, CallShape((F, G)), True),
        (
            {"tools": TOOLS, "tool_choice": "required", "parallel_tool_calls": False},
            CallShape((F, G), parallel=False),
            True,
        ),
        ({"tools": TOOLS, "tool_choice": NAMED}, CallShape((G,), parallel=False), True),
        ({"response_format": {"type": "text"}}, None, False),
        (
            {"response_format": {"type": "json_object"}},
            JsonShape({"type": "object"}, "response_format"),
            False,
        ),
        ({"response_format": FORMAT}, JsonShape(SCHEMA, WHERE), False),
        (
            {"response_format": FORMAT, "tools": TOOLS, "tool_choice": "none"},
            JsonShape(SCHEMA, WHERE),
            False,
        ),
        (
            {"response_format": FORMAT, "tools": TOOLS},
            JsonShape(SCHEMA, WHERE, CallShape((F, G))),
            True,
        ),
        (
            {"response_format": FORMAT, "tools": TOOLS, "parallel_tool_calls": False},
            JsonShape(SCHEMA, WHERE, CallShape((F, G), parallel=False)),
            True,
        ),
        (
            {"response_format": {"type": "text"}, "tools": TOOLS, "tool_choice": "required"},
            CallShape((F, G)),
            True,
        ),
    ],
)
def test_the_three_fields_make_one_shape(fields, wanted, reads_calls):
    """Every combination that means something has its shape."""
    assert shape(**fields) == (wanted, reads_calls)


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"tool_choice": "required"}, "tool_choice"),
        ({"tool_choice": NAMED}, "tool_choice.function.name"),
        ({"tools": TOOLS[:1], "tool_choice": NAMED}, "tool_choice.function.name"),
        ({"tools": TOOLS, "tool_choice": "any"}, "tool_choice"),
        ({"tools": TOOLS, "tool_choice": {"type": "function"}}, "tool_choice"),
        ({"tools": TOOLS, "tool_choice": {"type": "allowed_tools"}}, "tool_choice"),
        ({"response_format": {"type": "yaml"}}, "response_format.type"),
        ({"response_format": {}}, "response_format.type"),
        ({"response_format": {"type": "json_schema"}}, WHERE),
        ({"response_format": {"type": "json_schema", "json_schema": {"name": "n"}}}, WHERE),
        (
            {"response_format": {"type": "json_schema", "json_schema": {"schema": []}}},
            WHERE,
        ),
        ({"response_format": FORMAT, "tools": TOOLS, "tool_choice": NAMED}, "response_format"),
        (
            {"response_format": FORMAT, "tools": TOOLS, "tool_choice": "required"},
            "response_format",
        ),
    ],
)
def test_what_is_unknown_or_contradicts_itself_is_refused_by_name(fields, param):
    """A wish that cannot be kept is a 400 with its path, never ignored."""
    with pytest.raises(BadRequest) as refused:
        shape(**fields)
    assert refused.value.param == param
