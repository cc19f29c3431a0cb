"""Made-up tools can be called from what was said alone."""

import json
import random

from flashrt.demo.training.made_up import MadeUp
from flashrt.demo.training.words import Words


def _tasks(count):
    return [MadeUp(Words(random.Random(seed))).task() for seed in range(count)]


def test_values_fit_the_types_of_their_parameters():
    """And every JSON type occurs."""
    kinds = {"string": str, "integer": int, "number": int | float, "boolean": bool}
    kinds |= {"array": list, "object": dict}
    seen = set()
    for task in _tasks(300):
        for name, value in task.arguments.items():
            stated = task.tool["function"]["parameters"]["properties"][name]["type"]
            assert isinstance(value, kinds[stated])
            seen.add(stated)
    assert seen == set(kinds)


def test_every_value_but_a_switch_is_said_in_the_request():
    """So that it can be copied from there."""
    for task in _tasks(300):
        for value in task.arguments.values():
            parts = value if isinstance(value, list) else [value]
            parts = list(value.values()) if isinstance(value, dict) else parts
            assert all(isinstance(p, bool) or str(p) in task.ask for p in parts), task.ask


def test_answers_hold_what_the_tool_said():
    """Of a result in JSON every field."""
    for task in _tasks(300):
        if task.result.startswith('{"') and "error" not in task.result:
            assert all(str(v) in task.answer for v in json.loads(task.result).values())
