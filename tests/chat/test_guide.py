"""The constraint of one answer: phases, drafts, and nothing that moves but by what was accepted."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flashrt.chat.guide import EndsAfterCall, Guide
from flashrt.chat.shape import JsonShape
from flashrt.engine.fake import FakeEngine
from flashrt.engine.protocol import SamplingParams
from tests.chat.test_grammar import GRAMMARS, STOPS, TOKENIZER, VOCAB

SCHEMA = {
    "type": "object",
    "properties": {
        "colour": {"enum": ["red", "green"]},
        "count": {"type": "integer", "minimum": 0},
    },
    "required": ["colour", "count"],
    "additionalProperties": False,
}
CLOSE = TOKENIZER.control["</think>"]
LEAD = TOKENIZER.encode_text("\n\n")


def guide(*, thinking=False):
    """A guide over a small object."""
    matcher = GRAMMARS.compile(JsonShape(SCHEMA, "response_format"))
    return Guide(matcher, opens_thinking=thinking, think_close=CLOSE, lead=LEAD)


def same(one, other):
    """Equal rows."""
    return type(one) is type(other) and np.array_equal(one, other)


def test_thinking_is_free_then_the_lead_is_forced_then_the_shape_begins():
    """The schema never reaches into the think block, and starts where visible text does."""
    limit = guide(thinking=True)
    assert list(limit((), ())) == [None]
    assert list(limit(TOKENIZER.encode_text("hm, {"), ())) == [None]
    assert list(limit((CLOSE,), ())) == [LEAD[0]]
    (row,) = limit(LEAD, ())
    assert isinstance(row, np.ndarray)
    assert row[TOKENIZER.encode_text("{")[0]]
    assert not row[TOKENIZER.encode_text("hm")[0]]


WALK = [*TOKENIZER.encode_text('hm {"a'), CLOSE, *LEAD]
WALK += TOKENIZER.encode_text(json.dumps({"colour": "red", "count": 12}))


@given(
    cuts=st.lists(st.integers(0, len(WALK)), max_size=6),
    draft=st.integers(0, 8),
    wrong=st.integers(0, 9),
)
def test_rows_depend_on_accepted_ids_only(cuts, draft, wrong):
    """However the ids are grouped and whatever was drafted, the next row is the same."""
    alone, grouped = guide(thinking=True), guide(thinking=True)
    (wanted,) = alone(WALK[: max(cuts, default=0)], ())
    place = 0
    for cut in [*sorted(cuts), max(cuts, default=0)]:
        guess = list(WALK[cut : cut + draft])
        guess[wrong : wrong + 1] = [7] if len(guess) > wrong else []
        rows = grouped(WALK[place:cut], guess)
        assert len(rows) == len(guess) + 1
        place = cut
    assert same(rows[0], wanted)


def test_each_draft_row_is_the_row_after_accepting_it():
    """Verified together or one by one: the same limits."""
    together = guide(thinking=True)((), WALK)
    one_by_one = guide(thinking=True)
    accepted: tuple[int, ...] = ()
    for token, row in zip([*WALK, None], together, strict=True):
        (single,) = one_by_one(accepted, ())
        assert same(row, single)
        accepted = (token,)


@pytest.mark.parametrize("seed", range(5))
def test_an_engine_that_is_guided_writes_the_shape_and_stops(seed):
    """Even an engine of noise gives a valid object, and ends by itself."""
    engine = FakeEngine(vocab_size=VOCAB, max_seq=400)
    list(engine.prefill((1, 2, 3)))
    params = SamplingParams(temperature=1.0, seed=seed, stop_ids=STOPS)
    ids = [id_ for chunk in engine.decode(params, guide()) for id_ in chunk.tokens]
    if ids[-1] in STOPS:
        value = json.loads(TOKENIZER.decode(ids[:-1]))
        assert value["colour"] in ("red", "green")
        assert value["count"] >= 0
    else:
        assert len(ids) == 397


def test_behind_a_first_call_only_a_stop_may_follow():
    """What came before the call, and calls in the think block, are free."""
    call_close, stop = TOKENIZER.control["</tool_call>"], min(STOPS)
    stops = np.zeros(VOCAB, np.bool_)
    stops[stop] = True
    limit = EndsAfterCall(
        call_close=call_close, think_close=CLOSE, opens_thinking=True, stops=stops
    )
    assert list(limit((5, call_close), (6, CLOSE, 7))) == [None] * 4
    rows = limit((CLOSE, 7), (8, call_close, 9))
    assert [row is stops for row in rows] == [False, False, True, True]
    assert list(limit((8,), ())) == [None]
    assert limit((call_close,), ())[0] is stops
