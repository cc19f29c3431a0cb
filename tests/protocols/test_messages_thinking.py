"""How much to think, and thoughts that a client carries unread."""

import base64
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flashrt.errors import BadRequest
from flashrt.protocols.messages_thinking import (
    EFFORTS,
    EXPANSION_MAX,
    SEALED,
    ThinkingConfig,
    signature,
    thinking,
    thought_of,
)


@given(st.text() | st.integers(1, 3000).map("ab".__mul__))
def test_a_sealed_thought_comes_back_as_it_was(thought):
    """To the last character; and no signature is empty."""
    sealed = signature(thought, shown=False)

    assert thought_of({"type": "thinking", "thinking": "", "signature": sealed}) == thought
    assert sealed != SEALED


@given(st.text(min_size=1))
def test_of_a_thought_that_is_shown_the_text_counts(thought):
    """With our signature, with another, and without any."""
    signed = signature(thought, shown=True)
    assert 0 < len(signed) < 60
    for left in (signed, "", None, signature("other", shown=False)):
        assert thought_of({"type": "thinking", "thinking": thought, "signature": left}) == thought
    assert thought_of({"type": "thinking", "thinking": thought}) == thought


BOMB = base64.urlsafe_b64encode(zlib.compress(b"a" * 10_000_000)).decode()


@pytest.mark.parametrize(
    "signed", [None, "", "EqQBCg", 7, SEALED, f"{SEALED}?", f"{SEALED}YWJj", SEALED + BOMB]
)
def test_a_seal_that_is_not_ours_says_nothing(signed):
    """Somebody else's, a damaged one, and one that would fill the memory."""
    assert thought_of({"type": "thinking", "thinking": "", "signature": signed}) == ""


@given(st.integers(0, 200_000))
def test_no_seal_of_ours_expands_further_than_is_opened(length):
    """A thought that goes round in circles is kept as it is."""
    sealed = signature("x" * length, shown=False)
    packed = base64.urlsafe_b64decode(sealed.removeprefix(SEALED))
    assert length <= EXPANSION_MAX * len(packed)


def test_without_thinking_there_is_none():
    """Absent and disabled are the same, whatever the effort."""
    for config in (None, ThinkingConfig("disabled", 4096)):
        thought = thinking(config, "high")
        assert (thought.template_args, thought.tokens) == ({"enable_thinking": False}, None)


def test_a_budget_counts_over_what_an_effort_means():
    """The effort is still a word for the template."""
    assert thinking(ThinkingConfig("adaptive"), None).tokens is None
    assert thinking(ThinkingConfig("adaptive"), None).template_args == {"enable_thinking": True}
    thought = thinking(ThinkingConfig("enabled", 99), "low")
    assert thought.tokens == 99
    assert thought.template_args == {"enable_thinking": True, "reasoning_effort": "low"}
    assert not thinking(ThinkingConfig("enabled", 0), None).template_args["enable_thinking"]


def test_more_effort_is_never_less_thinking():
    """In the order of the words."""
    limits = [thinking(ThinkingConfig("adaptive"), word).tokens for word in EFFORTS]
    bounded = [limit for limit in limits if limit is not None]
    assert bounded == sorted(bounded)
    assert limits[: len(bounded)] == bounded
    assert len(bounded) == 3


@pytest.mark.parametrize(
    ("config", "word", "param"),
    [
        (None, "huge", "output_config.effort"),
        (ThinkingConfig("sometimes"), None, "thinking.type"),
        (ThinkingConfig("enabled", -1), None, "thinking.budget_tokens"),
    ],
)
def test_what_means_nothing_is_refused_by_name(config, word, param):
    """The field stands in the words too."""
    with pytest.raises(BadRequest) as refused:
        thinking(config, word)
    assert refused.value.param == param
    assert f"`{param}`" in refused.value.message
