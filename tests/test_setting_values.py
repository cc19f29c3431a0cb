"""One value of one setting: each kind is read from text and from its own type, or refused."""

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flashrt.errors import CannotServe
from flashrt.setting_values import Given, convert
from flashrt.settings import setting


@attrs.frozen
class Some:
    """Settings with every kind of limit."""

    free: object = setting(None, "anything")
    bounded: int = setting(3, "2 to 8, even", least=2, most=8, step=2)
    chosen: str = setting("a", "a or b", choices=("a", "b"))
    auto: int = setting(0, "auto or 5 on", least=5, auto=0)


FIELDS = attrs.fields(Some)
ORIGIN = "--it"


def read(kind, value, field=FIELDS.free):
    """The value, as one given for that setting."""
    return convert(field, kind, Given(value, ORIGIN))


def refusal(kind, value, field=FIELDS.free):
    """Why it is refused."""
    with pytest.raises(CannotServe, match=r"^--it is ") as caught:
        read(kind, value, field)
    return str(caught.value)


@given(st.integers() | st.booleans() | st.floats(allow_nan=False))
def test_a_value_and_its_text_are_the_same(value):
    """A flag is text, a file has types; both are read alike."""
    kind = type(value)
    assert read(kind, value) == read(kind, str(value)) == value
    assert type(read(kind, str(value))) is kind


@given(st.lists(st.text("abc", min_size=1), min_size=1))
def test_a_list_and_its_text_are_the_same(values):
    """Its members stand between commas."""
    assert read(tuple, values) == read(tuple, ",".join(values)) == tuple(values)


@pytest.mark.parametrize(
    ("kind", "value", "wanted"),
    [
        (int, "1.5", "a whole number"),
        (int, True, "a whole number"),
        (float, "fast", "a number"),
        (bool, "maybe", "true or false"),
        (bool, 1, "true or false"),
        (str, " ", "a text that is not empty"),
        (str, 5, "a text that is not empty"),
        (tuple, [1], "a list of texts"),
    ],
)
def test_another_kind_is_refused_with_what_it_must_be(kind, value, wanted):
    """The message names where it was given, and the value."""
    assert refusal(kind, value) == f"--it is {value!r}; it must be {wanted}"


@given(st.integers(-20, 20))
def test_limits_hold_at_their_borders(value):
    """What is within is taken, and what is not names the limit that it passes."""
    if value in (2, 4, 6, 8):
        assert read(int, value, FIELDS.bounded) == value
        return
    limit = "at least 2" if value < 2 else "at most 8" if value > 8 else "a multiple of 2"
    assert refusal(int, value, FIELDS.bounded).endswith(f"it must be {limit}")


def test_a_choice_is_one_of_the_words():
    """They are all named."""
    assert read(str, "b", FIELDS.chosen) == "b"
    assert refusal(str, "c", FIELDS.chosen) == "--it is 'c'; it must be one of a, b"


@pytest.mark.parametrize("value", ["auto", "0", 0])
def test_auto_is_a_word_for_a_number_that_would_be_too_small(value):
    """And is named where another number is refused."""
    assert read(int, value, FIELDS.auto) == 0
    assert refusal(int, 4, FIELDS.auto).endswith("at least 5, or auto")
