"""A call inside thinking that may be how the answer ends."""

from flashrt.chat.deltas import ToolCallEnd, ToolCallStart
from flashrt.chat.drafts import Draft
from tests.chat.streams import CALL, JSON_CALL, events, new_reader


def drafted(text: str) -> tuple[Draft, bool]:
    """A draft that was given a text, and whether it may still end the answer."""
    draft = Draft(new_reader())
    kept = True
    for piece, is_control in events(text):
        kept = kept and (draft.control(piece, shown=True) if is_control else draft.text(piece))
    return draft, kept


def test_whole_calls_that_end_the_answer_are_taken():
    """All of them, with blanks between."""
    draft, kept = drafted(f"{CALL}\n\n{JSON_CALL}\n")

    calls = draft.ended()
    assert kept
    assert calls is not None
    assert sum(isinstance(one.delta, ToolCallStart) for one in calls) == 2
    assert isinstance(calls[-1].delta, ToolCallEnd)


def test_text_behind_a_call_makes_it_a_draft():
    """As soon as it comes; what was drafted is kept as it was."""
    text = f"{CALL} or rather"
    draft, kept = drafted(text)

    assert not kept
    assert draft.raw == text


def test_an_open_call_among_them_makes_all_of_them_drafts():
    """Nobody knows what was meant."""
    for text in (
        CALL.partition("\n</parameter>")[0],
        f"{CALL}<tool_call><function=run><parameter=a>",
    ):
        draft, kept = drafted(text)
        assert kept
        assert draft.ended() is None


def test_what_is_no_call_is_none():
    """A marker alone ends nothing."""
    assert drafted("<tool_call>\n")[0].ended() is None
