"""Digests of lists of texts."""

from hypothesis import given
from hypothesis import strategies as st

from flashrt.chat.outline import digest

TEXTS = st.lists(st.text("a1:\ud800", max_size=3), max_size=3)


@given(TEXTS, TEXTS)
def test_different_lists_have_different_digests(a: list[str], b: list[str]):
    """However their texts could be joined; half a character is a text, too."""
    assert (digest(*a) == digest(*b)) == (a == b)
