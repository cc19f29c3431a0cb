"""Sealed thinking comes back exactly, and nothing else is taken for it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flashrt.protocols.responses_thought import SEAL, sealed, thought_of, unsealed


@given(st.text())
def test_a_seal_gives_back_exactly_what_was_thought(thought):
    """Every character, in plain ASCII on the way."""
    assert unsealed(sealed(thought)) == thought
    assert sealed(thought).isascii()


@pytest.mark.parametrize(
    "seal", [None, 3, "", "gAAAAABm", f"{SEAL}!", f"{SEAL}_w==", f"{SEAL}\u00fc"]
)
def test_what_is_no_seal_of_ours_is_none(seal):
    """Other servers' seals, broken ones, and other JSON."""
    assert unsealed(seal) is None


def test_the_seal_counts_then_the_content_then_the_summary():
    """A client may show less than it carries; of several parts all count."""
    content = [{"type": "reasoning_text", "text": t} for t in "ab"]
    summary = [{"type": "summary_text", "text": "s"}]

    whole = {"encrypted_content": sealed("x"), "content": content, "summary": summary}
    assert thought_of(whole) == "x"
    assert thought_of({**whole, "encrypted_content": "gA"}) == "ab"
    assert thought_of({"content": None, "summary": summary}) == "s"
    assert thought_of({"summary": []}) == ""
