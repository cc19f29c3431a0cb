"""Deltas as blocks."""

import json

import msgspec
import pytest

from flashrt.chat.deltas import (
    TextDelta,
    ThinkingDelta,
    ToolCallArguments,
    ToolCallEnd,
    ToolCallStart,
)
from flashrt.protocols.messages_blocks import AnswerBlocks
from flashrt.protocols.messages_events import TextBlock, ThinkingBlock, ToolUseBlock


def blocks_of(*deltas, shows=True):
    blocks = AnswerBlocks(shows_thinking=shows)
    list(blocks.take(deltas))
    return blocks.content()


def test_a_block_is_as_long_as_its_kind_goes_on():
    """Thinking between two texts parts them."""
    found = blocks_of(
        TextDelta("a"), TextDelta("b"), ThinkingDelta("t"), TextDelta(""), TextDelta("c")
    )
    assert [type(block) for block in found] == [TextBlock, ThinkingBlock, TextBlock]
    assert found[0] == TextBlock("ab")
    assert found[2] == TextBlock("c")


def test_each_call_is_a_block_and_one_without_arguments_has_an_empty_object():
    """Also two in a row."""
    found = blocks_of(
        ToolCallStart(0, "a", "f"), ToolCallEnd(0), ToolCallStart(1, "b", "g"), ToolCallEnd(1)
    )
    assert json.loads(msgspec.json.encode(found)) == [
        {"type": "tool_use", "id": "a", "name": "f", "input": {}},
        {"type": "tool_use", "id": "b", "name": "g", "input": {}},
    ]


def test_a_call_that_the_model_left_is_no_block_of_the_message():
    """Text behind it is one."""
    found = blocks_of(ToolCallStart(0, "a", "f"), ToolCallArguments(0, "{"), TextDelta("x"))
    assert found == [TextBlock("x")]


@pytest.mark.parametrize(
    ("written", "value"),
    [
        ('{"a": 1.0, "b": 123456789012345678901234567890}', None),
        ('{"a": "\\u00e4"}', None),
        ("[1]", b'{"arguments":"[1]"}'),
        ('{"a"', b'{"arguments":"{\\"a\\""}'),
        ('{"a":' + "[" * 5000, None),
    ],
)
def test_a_calls_input_is_what_the_model_wrote(written, value):
    """To the last digit; text that is no object is shown in one."""
    (found,) = blocks_of(ToolCallStart(0, "a", "f"), ToolCallArguments(0, written), ToolCallEnd(0))
    assert isinstance(found, ToolUseBlock)
    if written.startswith('{"a":['):
        assert found.input == {"arguments": written}
    else:
        assert msgspec.json.encode(found.input) == (value or written.encode())


def test_a_thought_that_is_not_shown_is_announced_and_sealed():
    """Its block has no text, and a signature at the end."""
    blocks = AnswerBlocks(shows_thinking=False)
    said = [*blocks.take([ThinkingDelta("a"), ThinkingDelta("b")]), *blocks.close()]
    kinds = [event.__struct_config__.tag for event in said]
    assert kinds == ["content_block_start", "content_block_delta", "content_block_stop"]
    assert list(blocks.close()) == []
