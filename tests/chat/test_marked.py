"""Control tokens of the template are told from everybody else's text."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flashrt.chat.marked import (
    PRIVATE_USE,
    Marked,
    Piece,
    opens_thinking,
    private_characters,
    render_marked,
)
from flashrt.chat.template import CLOSE, OPEN, Template
from flashrt.errors import BadRequest

CONTROL = ("<|a|>", "</b>")
ECHO = Template("<|a|>{{ x }}</b><{{ y }}>", CONTROL)
HOSTILE = st.lists(
    st.sampled_from([*CONTROL, "<", "|a|", ">", "<|a|", OPEN, CLOSE, "x", "\ue000", "\ue001", "ä"])
).map("".join)


def shown(x: Any, y: str = "") -> list[Piece]:
    return render_marked(ECHO, {"x": x, "y": y}).pieces()


@given(HOSTILE, HOSTILE)
def test_values_come_through_as_text_and_unharmed(x: str, y: str):
    """Control tokens, parts of them and even our own marks in values are just text."""
    expected = [Piece("<|a|>", True), Piece(x), Piece("</b>", True), Piece(f"<{y}>")]

    assert shown(x, y) == [piece for piece in expected if piece.text]


def test_values_inside_structures_come_through_too():
    """In lists and as keys and values of objects, as tools have them."""
    nested = {f"k{OPEN}": [f"{CLOSE}<|a|>", 1, None]}
    template = Template("{{ x|tojson }}<|a|>", CONTROL)

    pieces = render_marked(template, {"x": nested}).pieces()

    assert pieces == [Piece(f'{{"k{OPEN}": ["{CLOSE}<|a|>", 1, null]}}'), Piece("<|a|>", True)]


def test_a_token_that_the_template_cuts_in_two_is_text():
    """Only whole marks count; no half of one is left behind."""
    marked = Marked(f"x{OPEN}<|a|y{CLOSE[:0]}z{OPEN}</b>{CLOSE}w{CLOSE}")

    assert marked.pieces() == [Piece("x<|a|yz"), Piece("</b>", True), Piece("w")]


@pytest.mark.parametrize("without", [(), (OPEN, "\ue000"), (CLOSE, "\ue000")])
def test_text_that_leaves_no_stand_in_is_refused(without: tuple[str, ...]):
    """Two private characters are needed that nobody else uses, and that are no marks."""
    everything = {chr(code) for codes in PRIVATE_USE for code in codes}

    with pytest.raises(BadRequest, match="private-use"):
        shown("".join(sorted(everything - {*without})))


@pytest.mark.parametrize(
    ("pieces", "opens"),
    [
        ([], False),
        ([Piece("a")], False),
        ([Piece("<think>", True), Piece("\n")], True),
        ([Piece("<think>", True), Piece("x</think>\n")], True),
        ([Piece("<think>", True), Piece("\n"), Piece("</think>", True), Piece("\n")], False),
        ([Piece("<think>", True), Piece("x"), Piece("<|a|>", True), Piece("<think>")], False),
    ],
)
def test_a_prompt_opens_thinking_if_its_last_control_token_does(pieces: list[Piece], opens: bool):
    """Text that spells the tokens changes nothing."""
    assert opens_thinking(pieces, {"<think>", "</think>", "<|a|>"}) is opens


@pytest.mark.parametrize(
    ("text", "opens"), [("<think>\n", True), ("<think>\n</think>\n", False), ("a", False)]
)
def test_without_such_control_tokens_the_text_says_it(text: str, opens: bool):
    """A vocabulary may have no token for the block."""
    assert opens_thinking([Piece("<|a|>", True), Piece(text)], {"<|a|>"}) is opens
    assert not opens_thinking([Piece(text), Piece("<|a|>", True)], {"<|a|>"})


def test_private_characters_are_free_ones():
    """They occur neither in the values nor in the template, and are none of our marks."""
    values = {"a": ["\ue000", {"\ue001": "x"}], "b": OPEN}

    found = private_characters(values, "\ue002", 3)

    assert found == ["\ue003", "\ue004", "\ue005"]


def test_a_text_can_be_taken_up_to_a_mark():
    """Its control tokens and stand-ins stay what they are."""
    marked = Marked(f"a{OPEN}<x>{CLOSE}b\ue000c!d", ("\ue000", "\ue001"))

    assert marked.up_to("!").pieces() == [Piece("a"), Piece("<x>", True), Piece(f"b{OPEN}c")]
