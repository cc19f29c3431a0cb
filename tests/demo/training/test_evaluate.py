"""What counts as right."""

import json

import pytest
import torch

from flashrt.demo import DEMO_PATH
from flashrt.demo.training import evaluate
from flashrt.demo.training.evaluate import GROUPS, Grader, Rates, Said, calls_in, grade
from flashrt.demo.training.heldout import held_out

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


@pytest.mark.slow
def test_a_checkpoint_is_graded_from_end_to_end(monkeypatch):
    """One request of each group on the bundled checkpoint, whatever it can do."""
    monkeypatch.setattr(evaluate, "NEW_MAX", 8)
    grader = Grader(DEMO_PATH, 1, torch.bfloat16, 4096)
    rates = grade(grader, dict.fromkeys(GROUPS, 1), 200)
    for group in ("short", "two in order", "two at once", "behind 200 tokens"):
        assert rates.of[f"{group}: calls right"] == 1
    assert rates.of["turns ended by themselves"] == 2 + 3 + 2 + 2


def test_what_is_right_is_found_right(monkeypatch):
    """Right calls and an answer that holds the results score; a wrong value or answer does not."""
    first, second = held_out(2)
    grader = Grader.__new__(Grader)
    grader.rates = Rates()
    calls = [rendered(task) for task in (first, second)]
    answer = " ".join((*first.copied, *second.copied))
    for texts, want in (
        ([*calls, answer], (True, True)),
        ([calls[0], calls[0], answer], (False, True)),
        ([*calls, "nothing"], (True, False)),
    ):
        said = iter(texts)
        monkeypatch.setattr(grader, "say", lambda *_, said=said: Said("", next(said), True))
        assert grader.request("ask", [[first], [second]], [], "", False) == want


def rendered(task):
    """Its call in the wire format."""
    values = {n: v if isinstance(v, str) else json.dumps(v) for n, v in task.arguments.items()}
    inner = "".join(f"<parameter={n}>\n{v}\n</parameter>\n" for n, v in values.items())
    return (
        f"<tool_call>\n<function={task.tool['function']['name']}>\n{inner}</function>\n</tool_call>"
    )
