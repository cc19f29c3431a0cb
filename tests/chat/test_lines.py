"""Where in its lines a text stands."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flashrt.chat.lines import Lines


def after(*pieces: str) -> bool:
    lines = Lines()
    for piece in pieces:
        lines.feed(piece)
    return lines.may_open


@pytest.mark.parametrize(
    ("text", "may_open"),
    [
        ("", True),
        ("a\n  ", True),
        ("a", False),
        ("a ", False),
        ("```\n", False),
        ("  ```py\nx\n", False),
        ("```\nx\n```\n", True),
        ("~~~\nx\n", False),
        ("use ``` here\n", True),
    ],
)
def test_a_tag_opens_at_the_start_of_a_line_outside_of_code(text: str, may_open: bool):
    """Elsewhere it is written about."""
    assert after(text) is may_open


@given(st.text("a `~\n", max_size=20))
def test_how_it_is_cut_does_not_matter(text: str):
    """Letter by letter is the same."""
    assert after(text) == after(*text)


def test_behind_a_call_a_line_begins():
    """The code block around it goes on."""
    for text, may_open in (("a", True), ("```\na", False)):
        lines = Lines()
        lines.feed(text)
        lines.restart()
        assert lines.may_open is may_open
