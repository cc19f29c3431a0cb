"""Wordings are many and can be filled in."""

from flashrt.demo.training.phrases import ASKS, QUESTIONS, SHAPES
from flashrt.demo.training.smalltalk import CLOSINGS, OPENINGS


def test_every_kind_has_wordings_and_they_are_hundreds_with_what_surrounds_them():
    """Wordings times openings times closings."""
    assert set(ASKS) == set(SHAPES)
    assert set(QUESTIONS) <= set(SHAPES)
    for asks in ASKS.values():
        assert len(asks) * len(set(OPENINGS)) * len(set(CLOSINGS)) > 500
