"""From sampled ids to deltas and the one ending."""

import json
import unicodedata
from copy import deepcopy
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from flashrt.chat.arguments import ToolSchemas, typed
from flashrt.chat.deltas import Ending, Fed, FinishReason, TextDelta
from flashrt.chat.drafts import CallsInThinking
from flashrt.chat.render import Renderer
from flashrt.chat.request import AgentRequest
from flashrt.chat.tokenizer import LETTER_OF_BYTE, Tokenizer
from tests.chat.streams import CALL, JSON_CALL, WRITTEN
from tests.chat.transcript import answered, new_answer
from tests.chat.vocabulary import TOOLS, byte_ids, description, ids, template, tokenizer

STOP, LENGTH, TOOL_CALLS = FinishReason.STOP, FinishReason.LENGTH, FinishReason.TOOL_CALLS
END = "<|im_end|>"
RENDERER = Renderer(tokenizer(), template())
IGNORING = {"calls_in_thinking": CallsInThinking.IGNORE}
PLAIN = {"reads_structure": False, "tools": ()}

# Text without what a template strips, and without a marker.
LETTER = st.characters(codec="utf-8", exclude_characters="<>")
LINE = st.text(LETTER, max_size=12).map(lambda text: unicodedata.normalize("NFC", text))
TRIMMED = LINE.map(str.strip)
CALLS = st.lists(
    st.fixed_dictionaries(
        {
            "name": st.sampled_from(["run", "look"]),
            "arguments": st.fixed_dictionaries(
                {},
                optional={
                    "command": LINE,
                    "limit": st.integers(),
                    "flags": st.lists(LINE, max_size=2),
                    "note": st.one_of(st.none(), LINE),
                },
            ),
        }
    ),
    max_size=3,
)
MESSAGE = st.tuples(TRIMMED, TRIMMED, CALLS)


def written(thinking: str, text: str, calls: list[dict[str, Any]]) -> tuple[int, ...]:
    """The ids with which a model answers: as the template would write the same message."""
    said = {
        "role": "assistant",
        "content": text,
        "reasoning_content": thinking,
        "tool_calls": [{"function": call} for call in calls],
    }
    asked = {"role": "user", "content": "Go"}
    before = RENDERER.render(AgentRequest("m", (asked,))).ids
    after = RENDERER.render(AgentRequest("m", (asked, said), continues_last=False)).ids
    return after[len(before) : after.index(tokenizer().control[END], len(before)) + 1]


def as_text(value: Any) -> str:
    """A value as the template writes it."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


@given(MESSAGE, st.integers(1, 9))
def test_what_the_template_writes_is_read_back(message: tuple, burst: int):
    """Thinking, text and calls of any content come out as they went in, by any burst."""
    thinking, text, calls = message

    read, ending = answered(written(*message), burst, opens_thinking=True)

    assert read.thinking == thinking.strip("\n")
    assert read.text.rstrip("\n") == text.rstrip("\n")
    assert len(read.text) - len(text) in ((0, 2) if calls and text else (0,))
    schemas = ToolSchemas.of(TOOLS)
    for call, (name, arguments) in zip(calls, read.calls, strict=True):
        expected = {
            p: json.loads(typed(as_text(v), schemas.kinds(call["name"], p)))
            for p, v in call["arguments"].items()
        }
        assert (name, json.loads(arguments)) == (call["name"], expected)
    assert ending.reason is (TOOL_CALLS if calls else STOP)


@given(MESSAGE, st.integers(1, 200))
def test_a_shorter_limit_gives_a_prefix(message: tuple, max_tokens: int):
    """What comes out at a limit is the beginning of what comes out without."""
    sampled = written(*message)
    whole, _ = answered(sampled, opens_thinking=True)

    short, ending = answered(sampled, opens_thinking=True, max_tokens=max_tokens)

    assert short.begins(whole)
    if max_tokens < len(sampled):
        assert (ending.reason, ending.sampled_tokens) == (LENGTH, max_tokens)


@pytest.mark.parametrize("said", WRITTEN, ids=range(len(WRITTEN)))
def test_every_limit_gives_a_prefix_of_one_answer(said: str):
    """From one token to all of them; calls become complete one after the other."""
    sampled = ids(said + END)
    whole, _ = answered(sampled, opens_thinking=True)
    complete = 0

    for max_tokens in range(1, len(sampled)):
        short, ending = answered(sampled, opens_thinking=True, max_tokens=max_tokens)
        assert short.begins(whole)
        assert ending.reason is LENGTH
        assert short.complete == list(range(len(short.complete)))
        assert complete <= len(short.complete) <= len(whole.complete)
        complete = len(short.complete)


SPELLING = st.lists(
    st.sampled_from(["a", "END", "EN", "D", "<think>", "\n", CALL, "</think>", "🎈", "x y", END])
).map("".join)


@given(SPELLING, st.integers(1, 8), st.sampled_from([None, 3, 10]))
def test_bursts_change_nothing(spelling: str, burst: int, max_tokens: int | None):
    """One by one or several at a time: the same deltas, and the same ending."""
    options = {"stop_strings": ["END", "xD"], "max_tokens": max_tokens}

    assert answered(ids(spelling), burst, **options) == answered(ids(spelling), 1, **options)


@given(SPELLING)
def test_a_text_cut_into_bytes_reads_the_same(spelling: str):
    """How characters are spread over ids does not matter."""
    parts = [s for s in spelling.replace(">", ">\0").replace("<", "\0<").split("\0") if s]
    control = tokenizer().control
    finest = [i for s in parts for i in ([control[s]] if s in control else byte_ids(s))]

    fine, coarse = (answered(i, stop_strings=["END"])[0] for i in (finest, ids(spelling)))

    assert fine == coarse


# -- endings ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("said", "options", "reason"),
    [
        ("hi" + END, {}, STOP),
        ("hi", {}, LENGTH),
        ("hi" + END, {"max_tokens": 1}, LENGTH),
        (END, {"max_tokens": 1}, STOP),
        (CALL + END, {}, TOOL_CALLS),
        (CALL, {}, LENGTH),
        (CALL.removesuffix("</tool_call>") + END, {}, TOOL_CALLS),
        (CALL.partition("\n</parameter>")[0] + END, {}, STOP),
        (CALL + "and now: STOP" + END, {"stop_strings": ["STOP"]}, STOP),
        ("thinking only" + END, {"opens_thinking": True}, STOP),
        ("thinking only", {"opens_thinking": True}, LENGTH),
        (CALL + END, {"tools": ()}, STOP),
        (CALL + END, PLAIN, STOP),
        ("STOP" + END, {"stop_strings": ["STOP"], "opens_thinking": True}, STOP),
        (JSON_CALL + END, {}, TOOL_CALLS),
        (JSON_CALL, {}, LENGTH),
        (JSON_CALL.partition("}\n")[0] + END, {}, TOOL_CALLS),
        (JSON_CALL.partition("}")[0] + END, {}, STOP),
        (JSON_CALL.replace('"ls"', '"l" "s"') + END, {}, STOP),
        (CALL + CALL.partition("\n</parameter>")[0] + END, {}, TOOL_CALLS),
        (CALL + CALL.partition("\n</parameter>")[0], {}, LENGTH),
        ("<tools>\n" + JSON_CALL.partition("\n")[2] + END, {}, TOOL_CALLS),
        ("hm" + CALL + END, {"opens_thinking": True}, TOOL_CALLS),
        ("hm" + CALL, {"opens_thinking": True}, LENGTH),
        ("hm" + CALL + END, {"opens_thinking": True, **IGNORING}, STOP),
        ("hm" + CALL + "</think>" + END, {"opens_thinking": True}, STOP),
    ],
)
def test_the_finish_reason_is_true(said: str, options: dict[str, Any], reason: FinishReason):
    """For every combination of stop, length, tool calls, stop string and thinking only."""
    assert answered(ids(said), **options)[1].reason is reason


def test_what_lies_behind_an_ending_is_ignored():
    """A burst may be longer than the answer."""
    answer = new_answer()

    fed = answer.feed(ids(f"hi{END}more{END}"))

    assert fed.deltas == (TextDelta("hi"),)
    assert fed.ending == Ending(STOP, len(ids(f"hi{END}")), len(ids(f"hi{END}")))
    assert answer.feed(ids("more")) == Fed((), fed.ending)
    assert answer.window_end() == Fed((), fed.ending)


def test_a_stop_id_is_sampled_and_kept():
    """The journal may keep it; it was never shown."""
    read, ending = answered(ids("hi" + END))

    assert (read.text, ending.sampled_tokens, ending.kept_tokens) == (
        "hi",
        len(ids("hi")) + 1,
        len(ids("hi")) + 1,
    )


@pytest.mark.parametrize(
    ("said", "ended_by"),
    [("a xyz b", "xyz"), ("a zy b", "zy"), ("a b", None), ("a <|endoftext|>", "<|endoftext|>")],
)
def test_an_ending_names_the_stop_string_that_made_it(said: str, ended_by: str | None):
    """The longest of those that are complete with the same character; none where none was."""
    strings = ["yz", "xyz", "zy", "<|endoftext|>"]

    assert answered(ids(said), stop_strings=strings)[1].stop_string == ended_by


def test_a_stop_string_wins_over_the_length_that_falls_on_it():
    """The last token that is allowed completes it: that is a stop."""
    sampled = ids("x STOP")

    read, ending = answered(sampled, stop_strings=["STOP"], max_tokens=len(sampled))

    assert (read.text, ending.reason) == ("x ", STOP)


@example("a東b", ["東b"])
@given(
    st.lists(st.sampled_from(["a", "ab", "b", "é", "東", "c c", "ca", "<think>"])).map("".join),
    st.lists(st.sampled_from(["aba", "c", "bb", "é東", "東b", "zz"]), max_size=2),
)
def test_tokens_are_kept_that_end_in_front_of_the_stop_string(said: str, strings: list[str]):
    """Counted against the text of each beginning of the ids, for whole and for split characters."""
    for sampled in (ids(said), byte_ids(said.replace("<think>", ""))):
        read, ending = answered(sampled, stop_strings=strings, **PLAIN)
        if ending.reason is not STOP:
            assert ending.kept_tokens == len(sampled)
            continue
        literal = "<think>"
        visible = [
            len(tokenizer().decode(sampled[: n + 1]).replace(literal, ""))
            for n in range(len(sampled))
        ]
        inside = [n + 1 for n, length in enumerate(visible) if length <= len(read.text)]
        assert ending.kept_tokens == max([1, *inside])


SHORT = st.text("abé🎈 \n\u0301\u212b", max_size=8)


@st.composite
def cuttings(draw: st.DrawFn) -> tuple[str, tuple[int, ...]]:
    """A text and ids for it, cut as the vocabulary never would: by words, by letters, by bytes."""
    pieces = draw(st.lists(st.tuples(SHORT, st.booleans()), min_size=1, max_size=4))
    cut = [
        byte_ids(text) if by_bytes or tokenizer().decode(ids(text)) != text else ids(text)
        for text, by_bytes in pieces
    ]
    return "".join(text for text, _ in pieces), tuple(i for part in cut for i in part)


@given(cuttings(), st.lists(st.text("abé🎈 \n\u0301\u212b", min_size=1, max_size=3), max_size=2))
@example(("é🎈b", byte_ids("é🎈b")), ["🎈"])
@example(("the tool", ids("the tool")), ["ool"])
def test_what_is_kept_and_its_tail_read_as_the_client_saw_it(
    said: tuple[str, tuple[int, ...]], strings: list[str]
):
    """Also where the stop string cut inside a token, or inside the bytes of a character."""
    text, sampled = said[0], (*said[1], *ids(END))
    shown, ending = answered(sampled, stop_strings=strings, **PLAIN)

    if ending.shown_tokens is None:
        assert (shown.text, ending.kept_tokens, ending.tail) == (text, len(sampled), ())
        return
    seen = (*sampled[: ending.shown_tokens], *ending.tail)
    assert tokenizer().decode(seen) == shown.text
    assert ending.kept_tokens == max(1, ending.shown_tokens)


def test_no_half_of_a_character_is_kept_whose_rest_goes():
    """A vocabulary may have a token for the end of one character and the letters behind it."""
    made = deepcopy(description())
    vocab = made["model"]["vocab"]
    vocab[LETTER_OF_BYTE[0xA9] + "bc"] = odd = vocab.pop("".join(made["model"]["merges"].pop()))
    words = Tokenizer(made, {})
    first = next(i for i in range(odd) if words.id_to_bytes(i) == b"\xc3")
    sampled = (*words.encode("a"), first, odd)
    assert words.decode(sampled) == "aébc"

    ending = answered(sampled, tokenizer=words, stop_strings=["c"], **PLAIN)[1]

    assert (ending.kept_tokens, ending.shown_tokens) == (1, 1)
    assert words.decode((*sampled[:1], *ending.tail)) == "aéb"


def test_a_tail_holds_the_text_that_no_kept_token_has():
    """A token of its own for the letters in front of the stop string."""
    sampled = ids("Call the tool again")
    ending = answered(sampled, stop_strings=["ool"])[1]

    assert tokenizer().decode((*sampled[: ending.kept_tokens], *ending.tail)) == "Call the t"
    assert ending.tail != ()


def test_nothing_is_shown_of_a_first_token_that_is_the_stop_string():
    """It is kept all the same, for it is pending; but no client saw it."""
    ending = answered(ids("STOP"), stop_strings=["STOP"])[1]

    assert (ending.kept_tokens, ending.shown_tokens, ending.tail) == (1, 0, ())


def test_at_least_one_token_is_kept():
    """The one that is pending and was not processed."""
    assert answered(ids("STOP"), stop_strings=["STOP"])[1].kept_tokens == 1


def test_stop_strings_do_not_look_into_thinking_or_calls():
    """They are about the visible text."""
    said = f"STOP</think>a{CALL.replace('ls', 'STOP')}b STOP c{END}"

    read, ending = answered(ids(said), stop_strings=["STOP"], opens_thinking=True)

    assert (read.thinking, read.text, ending.reason) == ("STOP", "ab ", STOP)
    assert read.calls == [("run", '{"command":"STOP"}')]


def test_a_stop_string_does_not_reach_across_a_call():
    """Text in front of a call and text behind it are two texts."""
    read, ending = answered(ids(f"ST{CALL}OP{END}"), stop_strings=["STOP"])

    assert (read.text, ending.reason) == ("STOP", TOOL_CALLS)
    assert read.order[0] == read.order[-1] == "TextDelta"


@pytest.mark.parametrize("options", [PLAIN, {}])
def test_a_stop_string_may_be_a_control_token(options: dict[str, Any]):
    """Clients that fill in the middle send them; the token itself is not kept."""
    sampled = ids("ab<|endoftext|>c")

    read, ending = answered(sampled, stop_strings=["<|endoftext|>"], **options)

    assert (read.text, ending.reason) == ("ab", STOP)
    assert ending.kept_tokens == len(ids("ab"))


@pytest.mark.parametrize(
    ("sampled", "ended", "cut"),
    [
        ((*ids("a"), *byte_ids("東")[:2]), "a\ufffd", "a"),
        (ids("a ST"), "a ST", "a ST"),
        ((*ids("a S"), *byte_ids("é")[:1]), "a S\ufffd", "a S"),
    ],
)
def test_what_was_held_back_comes_out_at_the_end(sampled: tuple, ended: str, cut: str):
    """Partial stop strings and half characters, in their order; the length leaves halves out."""
    at_end, _ = answered((*sampled, tokenizer().control[END]), stop_strings=["STOP"])
    at_cut, _ = answered(sampled, stop_strings=["STOP"])

    assert (at_end.text, at_cut.text) == (ended, cut)


def test_a_stop_string_that_only_the_end_completes_still_counts():
    """What the end sets free is visible text like any other."""
    half = byte_ids("東")[:1]

    read, ending = answered((*ids("ab"), *half, *ids(END)), stop_strings=["b\ufffd"])

    assert (read.text, ending.reason, ending.kept_tokens) == ("a", STOP, len(ids("a")))


def test_reasoning_tokens_are_those_inside_the_block():
    """Without the markers around it."""
    thinking = ids("\nhm, so\n")

    for said, options in (
        ((*thinking, *ids(f"</think>a{END}")), {"opens_thinking": True}),
        ((*ids("<think>"), *thinking, *ids(f"</think>a{END}")), {}),
        (thinking, {"opens_thinking": True}),
    ):
        assert answered(said, **options)[1].reasoning_tokens == len(thinking)
    assert answered(ids("hm" + END))[1].reasoning_tokens == 0


def test_a_plain_answer_shows_text_as_it_is():
    """Markers spelled as text stay, control tokens are not shown, nothing is a call."""
    spelled = (*tokenizer().encode_text("<think>\n"), *ids(f"a<think>{CALL}"))

    read, _ = answered(spelled, **PLAIN)

    assert read.text == "<think>\na" + CALL.replace("<tool_call>", "").replace("</tool_call>", "")
    assert (read.thinking, read.calls) == ("", [])


def test_call_ids_are_asked_for_once_a_call():
    """The caller names them."""
    answer = new_answer()
    fed = answer.feed(ids(CALL + CALL + END))

    assert [d.call_id for d in fed.deltas if hasattr(d, "call_id")] == ["call_0", "call_1"]
