"""The blank edges of a block."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flashrt.chat.edges import Edges

WAYS: list[tuple[Callable[[Edges, str], str], Callable[[str], str]]] = [
    (lambda edges, text: edges.trimmed(text, "\n"), lambda text: text.strip("\n")),
    (lambda edges, text: edges.without_start(text), lambda text: text.lstrip("\n")),
    (
        lambda edges, text: edges.framed(text),
        lambda text: text.removeprefix("\n").removesuffix("\n"),
    ),
]


@pytest.mark.parametrize(("take", "whole"), WAYS)
@given(pieces=st.lists(st.text("a\n ", max_size=4), max_size=6))
def test_pieces_lose_what_the_whole_loses(
    take: Callable[[Edges, str], str], whole: Callable[[str], str], pieces: list[str]
):
    """However a block is cut; what is held at its end is left out."""
    edges = Edges()
    edges.begin()

    assert "".join(take(edges, piece) for piece in pieces) == whole("".join(pieces))


def test_what_is_held_can_be_had_back():
    """Once, for whatever it belongs to instead."""
    edges = Edges()

    assert edges.trimmed("a\n\n", "\n") == "a"
    assert edges.give_back() == "\n\n"
    assert edges.give_back() == ""
