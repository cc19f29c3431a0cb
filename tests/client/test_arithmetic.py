"""Arithmetic without eval."""

import math

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from flashrt.client.arithmetic import CHARS_MAX, calculate

NUMBERS = st.integers(0, 99).map(str) | st.floats(0, 99).map(repr)


def grown(inner):
    """Bigger expressions from smaller ones."""
    pair = st.tuples(inner, st.sampled_from(["+", "-", "*", "/", "//", "%"]), inner)
    return pair.map(lambda parts: "({} {} {})".format(*parts)) | inner.map(lambda text: f"-{text}")


@given(st.recursive(NUMBERS, grown, max_leaves=8))
def test_it_is_the_arithmetic_of_python(expression):
    """Whatever it takes, it computes as Python does, errors included."""
    assume(len(expression) <= CHARS_MAX)
    try:
        expected = eval(expression)
    except ArithmeticError as error:
        with pytest.raises(type(error)):
            calculate(expression)
    else:
        got = calculate(expression)
        assert got == expected or math.isnan(expected)


@pytest.mark.parametrize(
    ("expression", "value"),
    [(" 2 + 2\n", 4), ("2 ** 10", 1024), ("-(1 - 3) / 4", 0.5), ("(-2) ** 3.0", -8.0)],
)
def test_it_reads_what_models_write(expression, value):
    """Blanks around it, powers, signs and brackets."""
    assert calculate(expression) == value


@pytest.mark.parametrize(
    "expression",
    [
        "__import__('os')",
        "x",
        "'a' * 9",
        "True",
        "1 if 2 else 3",
        "[1]",
        "1j",
        "~1",
        "1 << 9",
        "2 +",
        "",
        "9 ** 9 ** 9",
        "2 ** -99999",
        "(-8) ** 0.5",
        "1" * (CHARS_MAX + 1),
        "(" * CHARS_MAX,
    ],
)
def test_everything_else_is_refused(expression):
    """Names, texts, other operators, and numbers that would never be finished."""
    with pytest.raises(ValueError, match=r"arithmetic|bits|real|characters|parenthes"):
        calculate(expression)


def test_no_expression_recurses_too_deep():
    """The longest one of signs alone stays within Python's stack."""
    assert calculate("-" * (CHARS_MAX - 1) + "1") == -1
