"""What is drawn depends on the numbers drawn alone."""

import random
import re

from flashrt.demo.training.words import Words


def test_the_same_numbers_make_the_same_words():
    """For every sort of word."""
    sorts = [n for n in vars(Words) if not n.startswith("_") and n not in ("words", "renamed")]
    for name in sorts:
        first, second = (getattr(Words(random.Random(5)), name)() for _ in range(2))
        assert first == second
        assert first


def test_a_name_is_often_changed_and_remains_a_name():
    """Of letters, digits and joints that clients use; no two draws need agree."""
    w = Words(random.Random(1))
    names = {w.renamed("send_mail") for _ in range(200)}
    assert "send_mail" in names
    assert len(names) > 60
    assert all(re.fullmatch(r"[A-Za-z][\w.-]*", name) for name in names)
