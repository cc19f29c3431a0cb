"""The first difference between a conversation and the one before it."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flashrt.chat.breaks import Break, BreakKind, find_break
from flashrt.chat.prompt import Prompt
from flashrt.chat.visible import Visible
from tests.chat.talks import ASK, LOOK, RESULT, SYSTEM, TALK, call, prompt, with_one
from tests.chat.vocabulary import TOOLS

ANSWER = Visible("Done.", (), "Hm")
DONE = {"role": "assistant", "content": "Done."}
NEXT = {"role": "user", "content": "Thanks"}
SECOND = {"role": "tool", "tool_call_id": "c2", "content": "two"}
BEFORE = prompt(*TALK)
K = BreakKind

EDITS = {
    "system": (with_one(0, content="Rules!"), Break(0, 5, K.SYSTEM_TEXT)),
    "system gone": (TALK[1:], Break(0, 0, K.SYSTEM_TEXT)),
    "question": (with_one(1, content="Gé."), Break(1, 1, K.MESSAGE)),
    "question longer": (with_one(1, content="Go.<"), Break(1, 3, K.MESSAGE)),
    "answer": (with_one(2, content="I book."), Break(2, 2, K.ANSWER_TEXT)),
    "calls": (with_one(2, tool_calls=[call('{"command": "lz"}')]), Break(2, 21, K.CALLS)),
    "reasoning": (with_one(2, reasoning_content="Ha"), Break(2, 1, K.REASONING)),
    "result": (with_one(3, content="a.js"), Break(3, 2, K.MESSAGE)),
    "result pruned": (with_one(3, content=""), Break(3, 0, K.MESSAGE)),
    "newest answer": ((*TALK, {**DONE, "content": "Don't"}, NEXT), Break(6, 3, K.ANSWER_TEXT)),
    "answer left out": ((*TALK, NEXT), Break(6, 0, K.MESSAGE)),
    "the same again": (TALK, Break(6, 0, K.SHORTER)),
    "one less": (TALK[:-1], Break(5, 0, K.SHORTER)),
    "two less": (TALK[:4], Break(4, 0, K.SHORTER)),
    "one put in": ((*TALK[:2], NEXT, *TALK[2:]), Break(2, 0, K.MESSAGE)),
}


@pytest.mark.parametrize(("talk", "found"), EDITS.values(), ids=EDITS)
def test_an_edit_is_named_by_message_byte_and_kind(talk: tuple, found: Break):
    """In the client's own counting."""
    assert find_break(BEFORE, ANSWER, prompt(*talk)) == found


@pytest.mark.parametrize(
    "message",
    [
        DONE,
        {**DONE, "content": "\nDone. "},
        {**DONE, "reasoning": "Hm"},
        {**DONE, "reasoning_content": "Hm\n"},
    ],
)
def test_a_conversation_that_goes_on_does_not_break(message: dict[str, Any]):
    """With the answer in any spelling, its thinking kept or dropped."""
    assert find_break(BEFORE, ANSWER, prompt(*TALK, message, NEXT)) is None


def test_other_thinking_is_a_break():
    """It was not what was sampled."""
    now = prompt(*TALK, {**DONE, "reasoning_content": "Ho"}, NEXT)

    assert find_break(BEFORE, ANSWER, now) == Break(6, 1, K.REASONING)


def test_an_unanswered_conversation_may_come_again_or_go_on():
    """Nothing was said to it."""
    assert find_break(BEFORE, None, BEFORE) is None
    assert find_break(BEFORE, None, prompt(*TALK, NEXT)) is None
    assert find_break(BEFORE, None, prompt(*TALK[:-1])) == Break(5, 0, K.SHORTER)


def test_results_of_one_turn_are_counted_one_by_one():
    """Though the template shows them as one turn."""
    calls = {**LOOK, "tool_calls": [call(), call(id="c2")]}
    talk = (SYSTEM, ASK, calls, RESULT, SECOND, NEXT)
    now = (*talk[:4], {**SECOND, "content": "too"}, NEXT)

    assert find_break(prompt(*talk), None, prompt(*now)) == Break(4, 1, K.MESSAGE)
    late = (*talk[:5], {**NEXT, "content": "Thanx"})
    assert find_break(prompt(*talk), None, prompt(*late)) == Break(5, 4, K.MESSAGE)


def test_joined_system_messages_are_counted():
    """What comes behind them has the client's index."""
    talk = (SYSTEM, *TALK)
    now = (SYSTEM, *with_one(3, content="a.js"))

    assert find_break(prompt(*talk), ANSWER, prompt(*now)) == Break(4, 2, K.MESSAGE)


def test_tools_and_arguments_are_told_from_text():
    """A tool that came late, and an argument that changes the history."""
    found = find_break(BEFORE, ANSWER, prompt(*TALK, tools=TOOLS[:1]))
    assert found is not None
    assert (found.message, found.kind) == (0, K.TOOLS)
    other = prompt(*TALK, DONE, NEXT, preserve_thinking=False)
    assert find_break(BEFORE, ANSWER, other) == Break(0, 0, K.TEMPLATE)
    assert find_break(BEFORE, ANSWER, prompt(*TALK, DONE, NEXT, enable_thinking=False)) is None


def test_an_answer_that_goes_on_inside_its_message_does_not_break():
    """The client's half and ours are one answer."""
    half = {"role": "assistant", "content": "It is"}
    before = prompt(ASK, half, continues_last=True)
    whole = {"role": "assistant", "content": "It is there."}

    assert find_break(before, Visible(" there."), prompt(ASK, whole, NEXT)) is None
    found = find_break(before, Visible(" gone."), prompt(ASK, whole, NEXT))
    assert found == Break(1, 6, K.ANSWER_TEXT)


def test_prompts_without_an_outline_never_break():
    """There is nothing to compare."""
    assert find_break(Prompt.from_ids([1]), None, BEFORE) is None
    assert find_break(BEFORE, ANSWER, Prompt.from_ids([1])) is None


@given(st.integers(0, 6), st.text("ab é", max_size=4), st.sampled_from(["demo", "verbatim"]))
def test_a_changed_text_is_found_where_it_stands(at: int, text: str, by: str):
    """The message, and the first byte that differs."""
    talk = [*TALK, DONE]
    old = f"é{talk[at]['content']}"
    before = [{**message, "content": f"é{message['content']}y"} for message in talk]
    changed = {**before[at], "content": f"{old}z{text}"}
    now = [*before[:at], changed, *before[at + 1 :]]

    found = find_break(prompt(*before, by=by), None, prompt(*now, by=by))

    assert found is not None
    assert (found.message, found.byte) == (at, len(old.encode()))


def test_what_had_been_said_earlier_is_compared_alone():
    """`Wording.until`: as after an undo, what came later neither breaks nor is missed."""
    earlier = BEFORE.wording.until(3)
    assert find_break(earlier, None, prompt(*TALK[:3], NEXT)) is None
    assert find_break(earlier, None, BEFORE) is None
    assert find_break(BEFORE, ANSWER, prompt(*TALK[:3], NEXT)) is not None
    changed = {**TALK[1], "content": "x" + str(TALK[1]["content"])}
    found = find_break(earlier, None, prompt(TALK[0], changed, *TALK[2:3], NEXT))
    assert found == Break(1, 0, K.MESSAGE)
    assert earlier.segments == BEFORE.segments[: len(earlier.segments)]
