"""Tasks of the well-known kinds hold together."""

import random

import pytest

from flashrt.demo.training.kinds import Kinds
from flashrt.demo.training.phrases import SHAPES
from flashrt.demo.training.words import Words


def _kinds(seed):
    return Kinds(Words(random.Random(seed)), "/home/x")


@pytest.mark.parametrize("kind", SHAPES)
def test_what_is_asked_holds_every_value_that_the_call_copies(kind):
    """A string that was not said can only be a path made absolute or a description of the call."""
    for seed in range(60):
        task = _kinds(seed).task(kind)
        for value in task.arguments.values():
            if isinstance(value, str) and not value.startswith(("/home/x/", "Run ")):
                assert value in task.ask or "./" + value in task.ask


def test_a_failed_tool_is_answered_with_its_reason():
    """No answer claims success behind an error."""
    failed = [t for s in range(200) if (t := _kinds(s).task("read")).answer.startswith("That did")]
    assert failed
    for task in failed:
        assert task.answer.removeprefix("That did not work: ").rstrip(".") in task.result
