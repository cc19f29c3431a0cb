"""Hand-written families: each is sound, and a drawn call can be read off its request."""

import json
import random

import pytest

from flashrt.demo.training.dialogue import name_of
from flashrt.demo.training.families import FOLDER, FamilyTasks, families, faults, load
from flashrt.demo.training.words import Words

FILES = sorted(FOLDER.glob("*.toml"))


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_no_family_has_a_fault(file):
    """Placeholders, pools, spoken forms, and enough of each kind of wording."""
    for family in load(file):
        assert faults(family) == [], family.kind


def test_there_is_breadth():
    """Hundreds of kinds and thousands of wordings."""
    assert len({family.kind for family in families()}) > 400
    assert sum(len(family.asks) for family in families()) > 6000


def test_every_argument_is_spoken_of_in_the_request():
    """Text, numbers and parts of lists as they are; what is spoken otherwise is a listed value."""
    tasks = FamilyTasks(Words(random.Random(3)))
    for family in families():
        task = tasks.task(family)
        offered = task.tool["function"]["parameters"]
        assert name_of(task.tool)
        assert set(offered["required"]) <= set(task.arguments) <= set(offered["properties"])
        otherwise = [v for p in family.params.values() if p.spoken for v in p.value]
        for value in task.arguments.values():
            parts = value if isinstance(value, list) else [value]
            texts = [part if isinstance(part, str) else json.dumps(part) for part in parts]
            read = isinstance(value, dict) or all(text in task.ask for text in texts)
            assert read or value in otherwise, (task.ask, value)


def test_a_fault_is_found():
    """A missing out, an unknown name, a boolean without words, and too few wordings."""
    family = families()[0]
    wrong = {**vars_of(family), "answers": ["$nobody"], "asks": ["nothing", "costs $"]}
    found = "\n".join(faults(type(family)(**wrong)))
    for part in (
        "neither a parameter nor an out",
        "holds no parameter",
        "begins no name",
        "only 2",
    ):
        assert part in found


def vars_of(family):
    """Its fields."""
    return {name: getattr(family, name) for name in family.__slots__ if name != "__weakref__"}
