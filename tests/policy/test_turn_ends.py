"""Boundaries of a session are found by what a client can know of them, or refused with a list."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flashrt.chat.session_call import Mark
from flashrt.errors import Conflict
from flashrt.policy.turn_ends import NOTHING, SHOWN_ENDS, TurnEnd, marked, stands_at

walks = st.lists(st.integers(1, 50), max_size=30).map(
    lambda steps: [
        TurnEnd(sum(steps[: n + 1]), turn=n + 1, messages=2 * n + 2) for n in range(len(steps))
    ]
)


@given(walks, st.integers(0, 1500))
def test_the_newest_end_at_or_below_a_length_is_found(ends, length):
    """Before the first one there is nothing."""
    below = [end for end in ends if end.length <= length]
    assert stands_at(ends, length) is (below[-1] if below else NOTHING)


@given(walks)
def test_each_boundary_is_found_by_each_of_its_numbers(ends):
    """The empty beginning too."""
    known = [NOTHING, *ends]
    for back, end in enumerate(reversed(known)):
        assert marked(ends, Mark(turns=back), "s") is end
        assert marked(ends, Mark(tokens=end.length), "s") is end
        assert marked(ends, Mark(messages=end.messages), "s") is end


@given(walks, st.integers(0, 2000))
def test_what_is_no_boundary_is_refused_with_those_that_there_are(ends, number):
    """By the field that was given; of many only the newest are listed."""
    known = [NOTHING, *ends]
    for field, numbers in (
        ("turns", list(range(len(known)))),
        ("tokens", [end.length for end in known]),
        ("messages", [end.messages for end in known]),
    ):
        if number in numbers:
            continue
        with pytest.raises(Conflict) as refusal:
            marked(ends, Mark(**{field: number}), "sess_1")
        assert refusal.value.param == field
        assert "sess_1" in refusal.value.message
        if field != "turns":
            listed = ", ".join(str(one) for one in numbers[-SHOWN_ENDS:])
            assert refusal.value.message.endswith(f"{listed}.")


def test_an_end_without_messages_is_found_by_none():
    """Of prompts of ids nobody counts messages; and null is not asked for."""
    ends = [TurnEnd(5, messages=None)]
    with pytest.raises(Conflict, match=r"at 0\.$"):
        marked(ends, Mark(messages=1), "s")
