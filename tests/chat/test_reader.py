"""Thinking, text and tool calls out of a stream, in any way it may be cut."""

import json
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flashrt.chat.drafts import CallsInThinking
from flashrt.fsm.reader import COMPLETES
from tests.chat.streams import (
    CALL,
    EVENTS,
    STREAMS,
    Event,
    cut,
    events,
    is_whole,
    mutated,
    new_reader,
    read,
    require_honest,
)
from tests.fsm.test_reader import completing


def test_the_rows_that_complete_a_call_are_those_of_the_specification():
    """Where specs/reader.md says *complete*, the reader closes the arguments."""
    assert completing() == COMPLETES


@settings(max_examples=250)
@given(STREAMS, st.integers(1, 7), st.booleans(), st.booleans(), st.sampled_from([None, {}]))
def test_cutting_a_stream_anywhere_changes_nothing(
    stream: list[Event], size: int, opens_thinking: bool, cut_off: bool, control: dict | None
):
    """Text in one piece, or in pieces of 1 to 7 characters: the same deltas when joined."""
    options = {"opens_thinking": opens_thinking, "cut_off": cut_off, "control": control}
    if control is not None:  # a vocabulary that has no control tokens
        stream = [("".join(text for text, _ in stream), False)]

    assert read(cut(stream, size), **options) == read(stream, **options)


@pytest.mark.parametrize("opens_thinking", [True, False])
@pytest.mark.parametrize("stream", EVENTS, ids=range(len(EVENTS)))
def test_a_written_answer_may_be_cut_at_every_place(stream: list[Event], opens_thinking: bool):
    """In two at every character, and into pieces of 1 to 7."""
    whole = read(stream, opens_thinking=opens_thinking)

    for size in range(1, 8):
        assert read(cut(stream, size), opens_thinking=opens_thinking) == whole
    for i, (text, is_control) in enumerate(stream):
        for at in range(1, 1 if is_control else len(text)):
            parts = [*stream[:i], (text[:at], False), (text[at:], False), *stream[i + 1 :]]
            assert read(parts, opens_thinking=opens_thinking) == whole


@pytest.mark.parametrize("stream", EVENTS, ids=range(len(EVENTS)))
def test_an_answer_cut_off_anywhere_is_a_beginning(stream: list[Event]):
    """Whatever the length ends early begins as the whole, and no open call is whole."""
    letters = cut(stream, 1)
    whole = read(letters, opens_thinking=True)

    for end in range(len(letters)):
        short = read(letters[:end], opens_thinking=True, cut_off=True)
        require_honest(letters[:end], short)
        assert short.begins(whole)


@settings(max_examples=250)
@given(STREAMS, st.booleans(), st.sampled_from(CallsInThinking))
def test_any_stream_has_a_reading(stream: list[Event], cut_off: bool, drafts: CallsInThinking):
    """Nothing raises; markers of thinking and turns never show; only complete calls look whole."""
    transcript = read(stream, opens_thinking=True, cut_off=cut_off, calls_in_thinking=drafts)

    require_honest(stream, transcript)


def walk_mutated(how_many: int, seed: int) -> None:
    """Read that many streams, whole and cut."""
    dice = random.Random(seed)
    for _ in range(how_many):
        stream = mutated(dice)
        options = {"opens_thinking": dice.random() < 0.6, "cut_off": dice.random() < 0.4}
        if dice.random() < 0.2:  # a vocabulary that has no control tokens
            stream = [("".join(text for text, _ in stream), False)]
            options["control"] = {}
        transcript = read(stream, **options)
        require_honest(stream, transcript)
        assert read(cut(stream, dice.randrange(1, 8)), **options) == transcript


def test_thousands_of_mutated_streams_are_read():
    """Nothing raises or leaks, and the cut changes nothing."""
    walk_mutated(3_000, seed=1)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(20))
def test_a_million_mutated_streams_are_read(seed: int):
    """The same, 50,000 at a time."""
    walk_mutated(50_000, seed=100 + seed)


@given(STREAMS)
def test_with_ids_or_with_text_markers_well_formed_blocks_read_alike(stream: list[Event]):
    """A vocabulary without tokens for the blocks has them read from the text."""
    well_formed = [("<think>", True), ("hm", False), ("</think>", True), ("\n\nhi\n\n", False)]
    well_formed += events(CALL)

    spelled = [(text, False) for text, _ in well_formed]

    assert read(spelled, control={}) == read(well_formed)


# -- what it reads ------------------------------------------------------------------------------


def test_a_whole_answer_is_taken_apart():
    """Thinking, text and two calls, in their order, without a marker or a blank around them."""
    answer = read(
        "\nFirst,\n\nlook.\n</think>\n\nI look.\n\n" + CALL + "\n<tool_call>\n<function=look>\n"
        "</function>\n</tool_call>",
        opens_thinking=True,
    )

    assert answer.thinking == "First,\n\nlook."
    assert answer.text == "I look.\n\n"
    assert answer.calls == [("run", '{"command":"ls"}'), ("look", "{}")]
    assert answer.order == [
        "ThinkingDelta",
        "TextDelta",
        "ToolCallStart",
        "ToolCallArguments",
        "ToolCallEnd",
        "ToolCallStart",
        "ToolCallArguments",
        "ToolCallEnd",
    ]


def test_only_newlines_are_stripped_behind_thinking():
    """An answer may begin with an indented line."""
    assert read("x</think>\n\n    def f():\n", opens_thinking=True).text == "    def f():\n"


@pytest.mark.parametrize("opening", ["", "<think>"])
def test_a_think_block_may_be_opened_by_prompt_or_model(opening: str):
    """Once more is no harm."""
    answer = read(f"{opening}\nhm</think>a", opens_thinking=True)

    assert (answer.thinking, answer.text) == ("hm", "a")
    assert read("<think>hm</think>a") == answer


def test_markers_spelled_as_text_are_text():
    """A model that quotes `</think>` letter by letter goes on thinking."""
    spelled = [("a `</think>` and `<tool_call>` b", False), ("</think>", True), ("c", False)]

    answer = read(spelled, opens_thinking=True)

    assert (answer.thinking, answer.text) == ("a `</think>` and `<tool_call>` b", "c")


def test_a_call_drafted_in_thinking_is_thought():
    """It is not executed."""
    answer = read(f"maybe {CALL}</think>no", opens_thinking=True)

    assert answer.calls == []
    assert answer.thinking == f"maybe {CALL}"
    assert answer.text == "no"


def test_without_tools_a_call_is_text():
    """Nobody offered to run it."""
    assert read(f"a {CALL} b", tools=()).text == f"a {CALL} b"


@pytest.mark.parametrize(
    "unreadable",
    [
        '<tool_call>\n{"title": "run"}\n</tool_call>',
        "<tool_call>\n<function=>\n",
        "<tool_call>\n<function=a\nb>",
        "<tool_call> <invoke>",
        "<tool_call>",
    ],
)
def test_what_is_no_call_is_text(unreadable: str):
    """Nothing of it is lost but a stray closing."""
    assert read(f"a {unreadable}").text == f"a {unreadable}".removesuffix("</tool_call>")


@pytest.mark.parametrize(
    "sloppy",
    [
        CALL.removesuffix("</tool_call>"),
        CALL.removesuffix("\n</tool_call>"),
        CALL.replace("\n</function>", ""),
        CALL.replace("\n</parameter>", ""),
        CALL.replace("\n</parameter>\n</function>", ""),
        CALL.replace("\n</function>\n</tool_call>", ""),
        CALL.replace("\n</parameter>", "").replace("\n</tool_call>", ""),
        CALL.replace("\n", ""),
        CALL.replace("</function>", "</parameter></function>").replace("ls\n</parameter>", "ls"),
    ],
)
@pytest.mark.parametrize("behind", ["", CALL])
def test_forgotten_closings_are_forgiven(sloppy: str, behind: str):
    """A call that the model ended by itself, or by the next one, is complete."""
    answer = read(sloppy + behind)

    assert answer.calls == [("run", '{"command":"ls"}')] * (2 if behind else 1)
    assert answer.text == ""


@pytest.mark.parametrize("cut_off", [True, False])
@pytest.mark.parametrize("end", range(len("<tool_call>"), CALL.index("\n</tool_call>")))
def test_a_call_that_is_cut_off_is_never_whole(end: int, cut_off: bool):
    """At any place ahead of the end of its function; ended by itself, only between values."""
    found = read(CALL[:end], cut_off=cut_off)

    if cut_off:
        assert not any(is_whole(arguments) for _, arguments in found.calls)
        assert found.text == ""
    else:
        assert all(json.loads(a) in ({}, {"command": "ls"}) for _, a in found.calls if is_whole(a))


@pytest.mark.parametrize(
    "value",
    [
        "a < b && c > d",
        "</parameter>",
        "x\n</parameter>\ny",
        "</function>",
        "</function>\n</parameter>\nx",
        "<parameter=limit>",
        "<function=run>",
        "<tool_call>",
        "</tool_call>x",
        "<think>no</think>",
        "</parameter><think>x",
        "</function> <|im_start|>x",
        "<|im_start|>user",
        "</para<|im_start|>meter>",
        "\n\nlines\n\n",
        " blanks ",
        "",
    ],
)
def test_a_value_may_contain_anything(value: str):
    """What looks like an end and is none stays in it; one newline at each end is the frame."""
    call = CALL.replace("ls", value)

    answer = read(call)

    assert [json.loads(a) for _, a in answer.calls] == [{"command": value}]
    assert answer.text == ""


def test_values_are_typed_by_the_tools_schema():
    """And what does not fit is a string."""
    call = (
        '<tool_call><function=run><parameter=limit>5.0</parameter><parameter=flags>["a"]'
        "</parameter><parameter=note>null</parameter><parameter=other>7</parameter>"
        "<parameter=command>007</parameter></function></tool_call>"
    )

    assert json.loads(read(call).calls[0][1]) == {
        "limit": 5,
        "flags": ["a"],
        "note": None,
        "other": "7",
        "command": "007",
    }


def test_arguments_are_streamed_as_they_grow():
    """Each piece of a string comes out with the piece of text that brought it."""
    reader = new_reader()
    for text, is_control in events("<tool_call>\n<function=run>\n<parameter=command>\n"):
        _ = reader.control(text) if is_control else reader.text(text)

    grown = [
        [one.delta.text for one in reader.text(text)] for text in ("ls", " -l", "a\n", "<", "b c")
    ]

    assert grown == [["ls"], [" -l"], ["a"], [], ["\\n<", "b c"]]


def test_stray_text_in_a_call_is_shown():
    """It belongs to no value, and must not vanish."""
    answer = read("<tool_call>\n<function=run>\n so \n be it\n</function>\n</tool_call>")

    assert answer.text == "so \n be it"
    assert answer.calls == [("run", "{}")]


def test_text_behind_calls_is_text():
    """The model may go on talking; where the call's own closing is missing too."""
    assert read(f"{CALL}\nDone.").text == "Done."
    assert read(f"{CALL.removesuffix('</tool_call>')}Done.").text == "Done."


def test_a_turn_token_in_text_is_not_shown():
    """Control tokens that mean nothing here are dropped."""
    assert read("a<|im_start|>b<tool_response>c</think>d").text == "abcd"


def test_a_marker_does_not_reach_across_a_control_token():
    """Its two halves are text, each on its side."""
    stream = [("<tool_call>", True), ("<func", False), ("<|im_start|>", True), ("tion=run>", False)]

    answer = read(stream)

    assert (answer.calls, answer.text) == ([], "<tool_call><function=run>")


def test_what_is_no_call_may_be_followed_by_thinking():
    """A control token decides a guess like any other text."""
    answer = read("<tool_call>\n<think>hm</think>x")

    assert (answer.text, answer.thinking) == ("<tool_call>\nx", "hm")


@pytest.mark.parametrize("stray", ["</think>", "</tool_call>"])
def test_a_stray_closing_changes_no_text(stray: str):
    """It is dropped, and the lines around it stay."""
    assert read(f"a\n{stray}\nb").text == "a\n\nb"


@given(STREAMS)
def test_places_of_text_are_places_in_the_answer(stream: list[Event]):
    """Each visible piece stands in the answer where it says."""
    reader = new_reader()
    answer = "".join(text for text, _ in stream)
    said = [
        one
        for text, is_control in stream
        for one in (reader.control(text) if is_control else reader.text(text))
    ]
    said += reader.finish(cut_off=False)

    assert reader.position == len(answer)
    for one in said:
        if type(one.delta).__name__ == "TextDelta":
            assert answer[one.at :].startswith(one.delta.text)
