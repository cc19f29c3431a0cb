"""Schemas that lead back to themselves, and those that only look like it."""

import pytest

from flashrt.chat.schemas import is_circular

TREE = {"type": "object", "properties": {"children": {"type": "array", "items": {"$ref": "#"}}}}


@pytest.mark.parametrize(
    ("schema", "circular"),
    [
        ({"$ref": "#"}, True),
        ({"$ref": ""}, True),
        ({"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/a"}}}, True),
        (
            {
                "$ref": "#/$defs/a",
                "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}},
            },
            True,
        ),
        ({"properties": {"a": {"$ref": "#/properties/a"}}}, True),
        ({"anyOf": [{"type": "null"}, {"$ref": "#"}]}, True),
        ({"allOf": [{"$ref": "#/allOf/0"}]}, True),
        ({"properties": {"a/b": {"$ref": "#/properties/a~1b"}}}, True),
        (TREE, False),
        ({"anyOf": [{"type": "null"}, TREE]}, False),
        ({"$ref": "#/$defs/t", "$defs": {"t": {"items": {"$ref": "#/$defs/t"}}}}, False),
        ({"anyOf": [{"$ref": "#/$defs/a"}] * 2, "$defs": {"a": {"type": "null"}}}, False),
        ({"$ref": "http://elsewhere"}, False),
        ({"$ref": "#/nowhere/0"}, False),
        ({"$ref": 5}, False),
        (True, False),
    ],
)
def test_a_reference_must_pass_a_part_of_a_value_before_it_comes_back(schema, circular):
    """A tree of trees is a value; what is only ever itself is none."""
    assert is_circular(schema) is circular
