"""Checked fields."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flashrt.errors import BadRequest
from flashrt.protocols.fields import (
    between,
    draft_tokens,
    only,
    pin_prefix,
    stop_strings,
    token_limit,
)


@given(st.floats(allow_nan=False), st.booleans())
def test_a_number_is_kept_or_refused(value, above_low):
    """Inside its range a number passes unchanged; outside it is refused with value and range."""
    inside = 0 <= value <= 2 and not (above_low and value == 0)

    if inside:
        assert between("x", value, 0, 2, above_low=above_low) == value
    else:
        with pytest.raises(BadRequest, match=r"`x` is .*; it must be .* 0 .* 2"):
            between("x", value, 0, 2, above_low=above_low)


@given(st.integers(-100, 100))
def test_drafts_are_kept_or_refused(value):
    """0 (none) to 63 (all rows that are verified together); beyond it, a 400 with the way out."""
    if 0 <= value <= 63:
        assert draft_tokens(value) == value
        return
    with pytest.raises(BadRequest, match=rf"`flashrt_draft_tokens` is {value}; .* to 63") as caught:
        draft_tokens(value)
    assert caught.value.param == "flashrt_draft_tokens"


@given(st.none() | st.booleans() | st.integers() | st.integers(-3, 3))
def test_a_pin_is_kept_or_refused(value):
    """A truth value or a length passes as it is, whatever its size; a negative one is a 400."""
    if value is None or value >= 0:
        assert pin_prefix(value) is value
        return
    with pytest.raises(BadRequest, match=rf"`flashrt_pin_prefix` is {value}; .* true") as caught:
        pin_prefix(value)
    assert caught.value.param == "flashrt_pin_prefix"


def test_what_is_left_out_is_left_alone():
    """None passes every check."""
    assert between("x", None, 0, 1) is None
    assert token_limit("x", None) is None
    assert draft_tokens(None) is None
    assert pin_prefix(None) is None
    assert stop_strings(None) == ()
    only("x", None, (), "")


def test_one_stop_string_is_a_list_of_one():
    """Both spellings are the same."""
    assert stop_strings("a") == stop_strings(["a"]) == ("a",)


def test_an_unsupported_wish_is_shown_in_short():
    """A long value is cut in the message."""
    with pytest.raises(BadRequest) as caught:
        only("x", ["a" * 100], (), "Leave it out.")

    assert len(caught.value.message) < 120
