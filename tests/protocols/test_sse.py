"""Framing."""

import json

from hypothesis import given
from hypothesis import strategies as st

from flashrt.protocols.sse import event


@given(st.dictionaries(st.text(), st.text() | st.integers(-(2**53), 2**53)))
def test_any_value_is_one_event(value):
    """Whatever text is inside, an event is one line that ends in an empty one."""
    framed = event(value)

    assert framed.endswith(b"\n\n")
    assert framed.count(b"\n") == 2
    assert b"\r" not in framed
    assert json.loads(framed.removeprefix(b"data: ")) == value
