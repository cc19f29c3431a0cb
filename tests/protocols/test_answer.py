"""Joining deltas."""

from hypothesis import given

from flashrt.chat.deltas import TextDelta, ThinkingDelta, ToolCallArguments
from flashrt.protocols.answer import joined
from tests.protocols.vocabulary import answers


def test_neighbours_of_one_kind_become_one():
    """Text joins text, thinking joins thinking, arguments join those of the same call."""
    deltas = [
        ThinkingDelta("a"),
        ThinkingDelta("b"),
        TextDelta("c"),
        TextDelta("d"),
        ToolCallArguments(0, "e"),
        ToolCallArguments(1, "f"),
        ToolCallArguments(1, "g"),
    ]

    assert list(joined(deltas)) == [
        ThinkingDelta("ab"),
        TextDelta("cd"),
        ToolCallArguments(0, "e"),
        ToolCallArguments(1, "fg"),
    ]


@given(answers())
def test_joining_twice_is_joining_once(outputs):
    """No two neighbours are left that could be joined."""
    deltas = [delta for output in outputs for delta in output]

    once = list(joined(deltas))

    assert list(joined(once)) == once
