"""Deltas gathered as a client does it."""

from flashrt.chat.deltas import (
    TextDelta,
    ThinkingDelta,
    ToolCallArguments,
    ToolCallEnd,
    ToolCallStart,
)
from flashrt.chat.heard import Heard
from flashrt.chat.visible import Visible


def test_deltas_are_joined_by_kind_and_call():
    """Text with text, thinking with thinking, arguments with their call's."""
    heard = Heard(strips=False)
    for delta in (
        ThinkingDelta("H"),
        ThinkingDelta("m"),
        TextDelta("a"),
        ToolCallStart(0, "x", "f"),
        ToolCallArguments(0, "{"),
        ToolCallArguments(0, "}"),
        ToolCallEnd(0),
        ToolCallStart(1, "y", "g"),
        ToolCallArguments(1, "{"),
        TextDelta("b"),
    ):
        heard.take(delta)

    assert heard.visible == Visible("ab", (("f", "{}"), ("g", "{")), "Hm", strips=False)
