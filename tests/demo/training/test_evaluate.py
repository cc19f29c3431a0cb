"""What counts as right."""

import json

import torch

from flashrt.demo import DEMO_PATH
from flashrt.demo.training import evaluate
from flashrt.demo.training.evaluate import Grader, Rates, calls_in, grade

CALL = """<tool_call>
<function=f>
<parameter=a>
 two  words
</parameter>
<parameter=b>
["x",1]
</parameter>
</function>
</tool_call>"""


def test_calls_are_compared_as_written_but_for_blanks_in_json():
    """A value of text keeps its blanks."""
    assert calls_in(CALL) == [("f", {"a": " two  words", "b": json.dumps(["x", 1])})]
    assert calls_in("no call") == []


def test_the_table_has_shares():
    """Of what was counted."""
    rates = Rates()
    rates.note("x", True)
    rates.note("x", False)
    rates.note("never", 0, 0)
    assert rates.table().splitlines()[2:] == ["| x | 50.0% | 2 |"]


def test_a_checkpoint_is_graded_from_end_to_end(monkeypatch):
    """One short and one long task on the bundled checkpoint, whatever it can do."""
    monkeypatch.setattr(evaluate, "NEW_MAX", 8)
    rates = grade(Grader(DEMO_PATH, 1, torch.bfloat16, 4096), 1, 1, 200)
    assert rates.of["short: calls right"] == rates.of["200 tokens: calls right"] == 1
    assert rates.of["turns ended by themselves"] == 4
