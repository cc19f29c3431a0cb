"""An exercise can be solved by reading it."""

import random

import pytest

from flashrt.demo.training.drills import Drills
from flashrt.demo.training.words import Words


@pytest.mark.parametrize("seed", range(20))
def test_every_answer_is_made_of_what_stands_in_the_exercise(seed):
    """Each word of it, but for the few of the answer's own frame."""
    drills = Drills(Words(random.Random(seed)))
    ask, answer = drills.repeat()
    assert answer in ask
    ask, answer = drills.words()
    words = ask.split(": ", 1)[1].split()
    at = [answer.index(word) for word in words]
    assert len(words) >= 4
    assert all(word in answer for word in words)
    assert at[0] == min(at)
    ask, answer = drills.pick()
    assert answer.split(" is ", 1)[1][:-1] in ask.replace("\\", "")
