"""Joining deltas, and the `flashrt` block."""

from hypothesis import given

from flashrt.chat.deltas import TextDelta, ThinkingDelta, ToolCallArguments
from flashrt.protocols.answer import flashrt_block, joined
from tests.protocols.vocabulary import FakeRecord, answers, call


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


def test_the_block_is_the_record_and_nothing_else():
    """Ids and lineage are long, and say what a prompt was: they are shown to who asks for them."""
    assert flashrt_block(call(), FakeRecord(), [7, 8]) == FakeRecord().report()


def test_the_lineage_is_shown_with_the_ids():
    """Span by span: where it ends, what made it, and the ids that were processed and dropped."""
    block = flashrt_block(call(ids=True), FakeRecord(), [7, 8])

    assert block["prompt_token_ids"] == [1, 2, 3, 4, 5]
    assert block["completion_token_ids"] == [7, 8]
    assert block["lineage"] == [[2, "prefill", [9]], [3, "decode", []]]
