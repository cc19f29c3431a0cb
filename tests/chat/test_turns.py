"""What probes tell about a template's turns."""

from itertools import pairwise

import pytest

from flashrt.chat.marked import Piece
from flashrt.chat.turns import AnswerTurn, find_answer_turn, strips_content, strips_system
from flashrt.errors import BadRequest
from tests.chat.foreign import renderer

QWEN = AnswerTurn("<|im_start|>", "assistant\n", "<|im_end|>")


def show(name: str):
    return renderer(name)._show


@pytest.mark.parametrize(
    ("name", "turn"),
    [
        ("demo", QWEN),
        ("strips", QWEN),
        ("verbatim", QWEN),
        ("by token", AnswerTurn("<tool_call>", "", "<|im_end|>")),
        ("unmarked", None),
    ],
)
def test_an_answers_turn_is_recognised_by_its_tokens(name: str, turn: AnswerTurn | None):
    """A token and the role behind it, or a token that says the role; else nothing."""
    assert find_answer_turn(show(name)) == turn


def test_turns_that_only_the_next_one_ends_are_not_recognised():
    """There is no token that an answer cut short could be closed with."""

    def without_end(messages, tools):
        pieces = []
        for message in messages:
            pieces += [Piece(f"<{message['role']}>", True), Piece(message["content"])]
        return [*pieces, Piece("<assistant>", True)]

    assert find_answer_turn(without_end) is None


def test_a_template_that_refuses_two_questions_in_a_row_is_recognised():
    """What stands behind an answer tells how a question opens."""

    def alternating(messages, tools):
        roles = [message["role"] for message in messages]
        if any(a == b for a, b in pairwise(roles)):
            raise BadRequest("Roles must alternate.")
        return show("verbatim")(messages, tools)

    assert find_answer_turn(alternating) == QWEN


def test_stripping_is_found_out():
    """For answers and for the system text."""
    assert strips_content(show("demo"))
    assert strips_system(show("demo"))
    assert not strips_content(show("verbatim"))
    assert not strips_system(show("verbatim"))
