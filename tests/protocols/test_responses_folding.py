"""What opens and closes an item; test_responses_answer.py has the laws of whole streams."""

from flashrt.chat.deltas import TextDelta, ThinkingDelta, ToolCallEnd, ToolCallStart
from flashrt.protocols.responses_events import tag_of
from flashrt.protocols.responses_folding import AnswerItems
from flashrt.protocols.responses_items import Form
from flashrt.protocols.responses_tools import offer


def told(items: AnswerItems, *deltas: object) -> list[str]:
    events = [event for delta in deltas for event in items.take(delta)]
    return [tag_of(event).removeprefix("response.") for event in events]


def test_another_kind_closes_the_item_before():
    """Thinking behind text is an item of its own, as it was said."""
    items = AnswerItems("r", Form(offer([])))

    told(items, ThinkingDelta("a"), ThinkingDelta("b"), TextDelta("c"), ThinkingDelta("d"))

    assert [item.id for item in items.items] == ["rs_r_0", "msg_r_1", "rs_r_2"]
    assert [item.status for item in items.items] == ["completed", "completed", "in_progress"]


def test_a_call_has_its_events_and_an_end_of_its_own():
    """Even one without arguments."""
    items = AnswerItems("r", Form(offer([])))

    assert told(items, ToolCallStart(0, "c", "f"), ToolCallEnd(0)) == [
        "output_item.added",
        "function_call_arguments.done",
        "output_item.done",
    ]


def test_what_is_open_when_all_stops_is_incomplete():
    """Without a word to anybody."""
    items = AnswerItems("r", Form(offer([])))
    told(items, TextDelta("a"), ToolCallStart(0, "c", "f"))
    items.stop()

    assert [item.status for item in items.items] == ["completed", "incomplete"]
