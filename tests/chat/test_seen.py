"""Equal values are one object."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flashrt.chat.seen import Seen
from tests.weighing import weighed

SCALARS = st.none() | st.booleans() | st.integers(-1, 2) | st.sampled_from([0.0, 1.0, "", "1", "é"])
VALUES = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from("ab"), inner, max_size=2)
    ),
    max_leaves=5,
)


def seen(bytes_max: int = 1 << 20) -> Seen:
    return Seen(lambda value: "é" in repr(value), bytes_max)


@given(st.lists(VALUES, min_size=1), st.integers(0, 2000))
def test_what_is_read_is_what_its_reader_makes_of_it(values: list[Any], bytes_max: int):
    """Whatever was read before, and however little is kept. Types and the order of keys count."""
    memory = seen(bytes_max)

    for value in values:
        reading = memory.reading()
        assert repr(reading.read(value, lambda value=value: [value])) == repr([value])
        assert reading.asked == ("é" in repr(value))
        assert memory.held_bytes <= bytes_max


def test_equal_values_are_one_object_for_all_readings():
    """Read once: the second reader is never asked."""
    memory = seen()
    first = memory.reading().read({"a": 1}, lambda: ["made"])

    assert memory.reading().read({"a": 1}, lambda: pytest.fail("read again")) is first
    assert memory.reading().same(["made"]) is not first  # another value, though it looks the same


@pytest.mark.parametrize(
    ("one", "other"),
    [(1, True), (1, 1.0), ({"a": 1, "b": 2}, {"b": 2, "a": 1}), ("1", 1), ([], {}), (0.0, -0.0)],
)
def test_values_that_a_template_writes_otherwise_are_two(one: Any, other: Any):
    """Python calls most of these equal."""
    reading = seen().reading()

    assert repr([reading.same([one]), reading.same([other])]) == repr([[one], [other]])


def test_what_is_no_json_is_read_each_time():
    """It has no name that would tell it from others."""
    memory, value = seen(), object()

    assert memory.reading().same([value]) == [value]
    assert memory.held_bytes == 0


@pytest.mark.parametrize("text", ["word " * 40, "ü" * 300, "東" * 300])
def test_the_count_is_what_python_allocates(text: str):
    """Never less, and not twice as much."""
    seen().reading().same({"role": "user"})

    def filled() -> Seen:
        memory = seen()
        for number in range(100):
            memory.reading().same({"role": "".join(["us", "er"]), "content": f"{number} {text}"})
        return memory

    memory, allocated = weighed(filled)
    assert allocated <= memory.held_bytes <= 2 * allocated
