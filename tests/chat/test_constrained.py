"""The constraint of a request: shape and budget together, and what a think block may hold."""

import numpy as np
import pytest

from flashrt.chat.constrained import Constraints
from flashrt.chat.guide import EndsAfterCall, Guide
from flashrt.chat.prompt import Prompt
from flashrt.chat.request import AgentRequest
from flashrt.chat.shape import CallShape, JsonShape, OneCall
from flashrt.chat.thinking import ThinkingBudget
from tests.chat.test_grammar import STOPS, TOKENIZER, VOCAB

CONSTRAINTS = Constraints(TOKENIZER, VOCAB, STOPS)
CLOSE, CALL = TOKENIZER.control["</think>"], TOKENIZER.control["<tool_call>"]
LEAD = TOKENIZER.encode_text("\n\n")
SHAPE = JsonShape({"enum": ["red"]}, "response_format")


def constraint(*, thinks=False, **wish):
    """What limits the answer to a request with this wish."""
    prompt = Prompt((1, 2), (), opens_thinking=thinks)
    return CONSTRAINTS.of(AgentRequest(model="m", messages=(), **wish), prompt)


@pytest.mark.parametrize(
    ("wish", "kind"),
    [
        ({}, type(None)),
        ({"shape": SHAPE}, Guide),
        ({"shape": CallShape(({"name": "f"},))}, Guide),
        ({"shape": OneCall()}, EndsAfterCall),
        ({"thinking_tokens": 5}, ThinkingBudget),
    ],
)
def test_a_request_without_wishes_is_free(wish, kind):
    """Each wish has its own constraint."""
    assert type(constraint(**wish)) is kind


def test_a_budget_ends_the_thoughts_and_the_shape_follows():
    """Both constraints agree about the blank line between."""
    limit = constraint(thinks=True, shape=SHAPE, thinking_tokens=2)
    thought = TOKENIZER.encode_text("hm hm")[:2]
    (row,) = limit((), ())
    assert row[thought[0]]
    (row,) = limit(thought, ())
    closing = []
    while not isinstance(row, np.ndarray):
        closing.append(row)
        (row,) = limit((row,), ())
    assert tuple(closing[-1 - len(LEAD) :]) == (CLOSE, *LEAD)
    assert row[TOKENIZER.encode_text('"')[0]]
    assert not row[thought[0]]


def test_before_a_shape_a_think_block_can_only_close():
    """It may not stop the answer, nor call, nor open another: the shape would never come."""
    (row,) = constraint(thinks=True, shape=SHAPE)((), ())
    assert row[CLOSE]
    assert row[list(TOKENIZER.encode_text("any text {"))].all()
    assert not row[[*STOPS, CALL, TOKENIZER.control["<think>"]]].any()
    assert not row[TOKENIZER.vocab_size :].any()
