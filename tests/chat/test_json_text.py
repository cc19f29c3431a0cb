"""JSON in pieces, as models write it, becomes JSON that is always right."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flashrt.chat.json_text import DEPTH_MAX, JsonText, StringText

TEXT = st.text(st.characters(codec="utf-8"), max_size=8)
NUMBERS = st.floats(allow_nan=False, allow_infinity=False)
VALUES = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), NUMBERS, TEXT),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(TEXT, inner, max_size=3)),
    max_leaves=8,
)
DIRTY = st.text('{}[]":,\\ \nu0deaNn1.', min_size=1, max_size=24)


def rewritten(text: str, size: int = 0) -> tuple[str, JsonText, int]:
    """What comes of a text in pieces, the reader of it, and how much it took."""
    reader = JsonText()
    written, taken = "", 0
    for i in range(0, len(text), size or len(text)):
        piece = text[i : i + (size or len(text))]
        more, moved = reader.feed(piece)
        written, taken = written + more, taken + moved
        if moved < len(piece):
            break
    return written, reader, taken


@given(VALUES, st.sampled_from([None, 1]), st.booleans(), st.integers(1, 7))
def test_json_comes_out_as_it_went_in(value: Any, indent: int | None, ascii_only: bool, size: int):
    """Any value, in any style, in any pieces; behind it nothing more is taken."""
    text = json.dumps(value, indent=indent, ensure_ascii=ascii_only)
    written, reader, taken = rewritten(text + " x", size)

    assert json.loads(written) == value
    assert (reader.over, reader.broken) == (True, False)
    assert taken in (len(text), len(text) + 1)


@given(DIRTY, st.integers(1, 5))
def test_cutting_dirt_changes_nothing(text: str, size: int):
    """What comes out, whether it broke, and where."""
    whole, whole_reader, whole_taken = rewritten(text)
    written, reader, taken = rewritten(text, size)

    assert (written, taken) == (whole, whole_taken)
    assert (reader.over, reader.broken) == (whole_reader.over, whole_reader.broken)


@given(DIRTY)
def test_what_may_close_is_json_once_closed(text: str):
    """And what is not over is none yet."""
    written, reader, _ = rewritten(text)

    if not reader.over and not reader.broken and written:
        with pytest.raises(json.JSONDecodeError):
            json.loads(written)
    if reader.may_close and not reader.broken:
        json.loads(written + ("" if reader.over else reader.close()))


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('{"a": [1, 2,], }', {"a": [1, 2]}),
        ('{"a": True, "b": None, "c": False}', {"a": True, "b": None, "c": False}),
        ('{"a": NaN, "b": -Infinity}', {"a": "NaN", "b": "-Infinity"}),
        ('{"a": 1e999, "b": 007, "c": 1e5}', {"a": "1e999", "b": "007", "c": 1e5}),
        ('{"a": "x\ny\t\\d"}', {"a": "x\ny\t\\d"}),
        ('{"a": "\\ud83c\\udf88 \\ud83c \\udf88"}', {"a": "🎈 \ufffd \ufffd"}),
        ('{"a": "\\u00zz\\u12"}', {"a": "\\u00zz\\u12"}),
    ],
)
def test_what_models_get_wrong_is_put_right(text: str, value: Any):
    """A constant that JSON does not have is a string; nothing is rounded or guessed."""
    written, reader, _ = rewritten(text)

    assert json.loads(written) == value
    assert reader.over


@pytest.mark.parametrize(
    "text", ["{'a': 1}", '{"a" 1}', '{"a": 1 "b": 2}', "{a: 1}", "[1}", '{"a":}', "<", ",", "]"]
)
def test_what_is_no_json_breaks(text: str):
    """It stands in front of what it could not read."""
    _, reader, taken = rewritten(text)

    assert reader.broken
    assert taken < len(text)


def test_depth_is_bounded():
    """Clients' parsers would give up on more."""
    assert not rewritten("[" * DEPTH_MAX)[1].broken
    assert rewritten("[" * (DEPTH_MAX + 1))[1].broken


def test_a_string_ends_at_its_quote():
    """And says where that was."""
    reader = StringText()

    assert reader.feed('a\\"b"c') == ('a"b', 5)
    assert reader.over
