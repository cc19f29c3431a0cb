"""Nesting: counted exactly, however deep, in lists, objects and decoded structs alike."""

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from flashrt.chat.nesting import NESTING_MAX, too_deep


class Held(msgspec.Struct):
    """One level, as a decoder makes it."""

    inner: object


WRAPS = (
    lambda value: [value],
    lambda value: {"a": value},
    lambda value: [1, value, "x"],
    Held,
)


@given(st.lists(st.sampled_from(WRAPS)), st.integers(NESTING_MAX - 3, NESTING_MAX + 3))
def test_a_value_is_too_deep_from_the_limit_on(wraps, depth):
    """Whatever the levels are made of."""
    value = "the innermost"
    for i in range(depth):
        value = (wraps or WRAPS)[i % len(wraps or WRAPS)](value)
    assert too_deep(value) == (depth > NESTING_MAX)


def test_it_does_not_recurse_itself():
    """Deeper than Python's own limit."""
    value = []
    for _ in range(100_000):
        value = [value]
    assert too_deep(value)
    while value:  # deallocating it at once would be deep, too
        value = value.pop()


def test_what_is_wide_is_not_deep():
    """Many levels of one element each are not many elements of one level."""
    assert not too_deep([[[i] for i in range(1000)], {str(i): {} for i in range(1000)}])
    assert not too_deep("text")
