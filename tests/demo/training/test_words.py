"""What is drawn depends on the numbers drawn alone."""

import random

from flashrt.demo.training.words import Words


def test_the_same_numbers_make_the_same_words():
    """For every sort of word."""
    sorts = [n for n in vars(Words) if not n.startswith("_") and n != "words"]
    for name in sorts:
        first, second = (getattr(Words(random.Random(5)), name)() for _ in range(2))
        assert first == second
        assert first
