"""Tool calls as deltas."""

import pytest

from flashrt.chat.calls import Calls
from flashrt.chat.deltas import Delta, TextDelta, ToolCallArguments, ToolCallEnd, ToolCallStart
from tests.chat.vocabulary import TOOLS


@pytest.fixture
def said() -> list[Delta]:
    return []


@pytest.fixture
def calls(said: list[Delta]) -> Calls:
    return Calls(TOOLS, lambda: "id", said.append)


def test_a_call_in_tags_is_written_from_its_parts(calls: Calls, said: list[Delta]):
    """Each value by the type that the tool's schema gives it; the end comes last."""
    calls.open_function("run")
    calls.open_parameter("limit", value_open=False)
    calls.add_value("5")
    calls.open_parameter("command", value_open=True)
    calls.add_value("ls")
    calls.complete_function(value_open=True)

    written = "".join(d.text for d in said if isinstance(d, ToolCallArguments))
    assert (said[0], said[-1]) == (ToolCallStart(0, "id", "run"), ToolCallEnd(0))
    assert written == '{"limit":5,"command":"ls"}'
    assert calls.complete == 1


def test_an_abandoned_call_keeps_its_number(calls: Calls, said: list[Delta]):
    """And never ends."""
    calls.begin_object(any_name=True)
    calls.object.feed('{"name": "run", "arguments": {"a" ?')
    calls.open_object()
    calls.object_grew()
    calls.abandon_object()
    calls.open_function("look")
    calls.complete_function(value_open=False)

    assert [d.index for d in said if isinstance(d, ToolCallStart)] == [0, 1]
    assert [d.index for d in said if isinstance(d, ToolCallEnd)] == [1]
    assert calls.complete == 1


def test_calls_that_were_read_apart_go_on_in_the_numbering(calls: Calls, said: list[Delta]):
    """Each keeps its own pieces; text among them is left out."""
    calls.open_function("look")
    calls.complete_function(value_open=False)
    del said[:]

    apart = [
        piece
        for i in range(2)
        for piece in (ToolCallStart(i, "x", "run"), ToolCallArguments(i, "{}"), ToolCallEnd(i))
    ]
    calls.adopt([TextDelta("\n"), *apart])

    assert [d.index for d in said if not isinstance(d, TextDelta)] == [1, 1, 1, 2, 2, 2]
    assert len(said) == 6
    assert calls.complete == 3
