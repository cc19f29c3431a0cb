"""Stop strings in text that comes in pieces."""

from itertools import pairwise

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from flashrt.chat.stops import StopStrings

LETTERS = st.text("ab", max_size=40)
STRINGS = st.lists(st.text("ab", max_size=7), max_size=3)
CUTS = st.lists(st.integers(0, 24), max_size=6)


def pieces(text: str, cuts: list[int]) -> list[str]:
    """`text` cut at some places."""
    edges = [0, *sorted(min(cut, len(text)) for cut in cuts), len(text)]
    return [text[a:b] for a, b in pairwise(edges)]


def earliest(text: str, strings: list[str]) -> int | None:
    """Where the stop string begins that is complete first, the longest of those."""
    for end in range(1, len(text) + 1):
        complete = [s for s in strings if s and text[:end].endswith(s)]
        if complete:
            return end - max(map(len, complete))
    return None


def partial(text: str, strings: list[str]) -> int:
    """How much of the end of `text` may still become a stop string."""
    lengths = range(len(text), 0, -1)
    return next((n for n in lengths if any(s.startswith(text[-n:]) for s in strings if s)), 0)


@settings(max_examples=300)
@example("aabaaabaaac", ["aabaaac"], [])
@given(LETTERS, STRINGS, CUTS)
def test_the_first_completion_cuts_wherever_the_text_is_cut(
    text: str, strings: list[str], cuts: list[int]
):
    """What is shown ends where the stop string that is complete first begins."""
    stops = StopStrings(strings)
    shown, cut, at = "", None, 100

    for piece in pieces(text, cuts):
        fed = stops.feed(piece, at)
        shown, cut, at = shown + fed.text, fed.cut, at + len(piece)
        if cut is not None:
            break

    expected = earliest(text, strings)
    assert cut == (None if expected is None else 100 + expected)
    if expected is None:
        assert shown + stops.flush() == text
    else:
        assert shown == text[:expected]


@given(LETTERS, STRINGS, CUTS)
def test_only_a_true_partial_match_is_held_back(text: str, strings: list[str], cuts: list[int]):
    """After each piece everything is shown but the longest end that may still become a stop."""
    stops = StopStrings(strings)
    shown, so_far = "", ""

    for piece in pieces(text, cuts):
        so_far += piece
        if earliest(so_far, strings) is not None:
            return
        shown += stops.feed(piece, 0).text
        assert shown == so_far[: len(so_far) - partial(so_far, strings)]


def test_places_are_those_of_the_answer_even_where_text_is_missing():
    """Held text keeps its own places: between two pieces something may have been left out."""
    stops = StopStrings(["END"])

    assert stops.feed("xE", 10).text == "x"
    assert stops.feed("ND", 500).cut == 11


def test_what_was_flushed_begins_no_stop_string():
    """After a flush the search starts anew."""
    stops = StopStrings(["ab"])
    stops.feed("a", 0)

    assert stops.flush() == "a"
    assert stops.feed("b", 1).cut is None


@pytest.mark.parametrize(
    ("strings", "shown"),
    [
        (["a", "is", ","], "th"),
        (["STOP y", "STOP"], "th"),
        (["OP", "STOP", "P"], "th"),
        ([""], None),
    ],
)
def test_probes_from_elsewhere(strings: list[str], shown: str | None):
    """Short ones inside longer ones, and an empty one, which stops nothing."""
    text = "this, STOP y" if "is" in strings else "thSTOP y"
    fed = StopStrings(strings).feed(text, 0)

    assert fed.text == (text if shown is None else shown)
