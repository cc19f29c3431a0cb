"""What is graded is not what was trained."""

import itertools
import re
from pathlib import Path

from flashrt.demo import training
from flashrt.demo.training.heldout import JOINTS, TOOLS, held_out

FOLDER = Path(training.__file__).parent
GENERATOR = ["words", "kinds", "phrases", "made_up", "smalltalk", "dialogues", "rows", "schemas"]
GENERATOR += ["drills", "families", "joints"]
TABLES = [FOLDER / "known.toml", *sorted((FOLDER / "families").glob("*.toml"))]


def test_no_name_or_wording_of_a_held_out_task_is_the_generators():
    """The generator's sources hold none of them, and none of them imports the file."""
    files = [FOLDER / f"{name}.py" for name in GENERATOR] + TABLES
    text = "\n".join(file.read_text(encoding="utf-8") for file in files)
    assert "heldout" not in text
    for _, name, description, _, asks, _, _ in TOOLS:
        for said in (name, description, *asks):
            assert f'"{said}"' not in text
            dollars = re.sub(r"{(\w+)}", r"$\1", said)
            assert f'"{dollars}"' not in text
    for joint in itertools.chain(*JOINTS.values()):
        for words in re.findall(r"[A-Za-z ]{6,}", joint):
            assert words.strip() not in text, words


def test_held_out_tasks_are_the_same_for_the_same_seed_and_filled_in():
    """Nothing is left to fill, and every value that must be copied is in the tool's result."""
    tasks = held_out(200)
    assert tasks == held_out(200)
    for task in tasks:
        assert "{" not in task.ask
        assert all(part in task.result for part in task.copied)
        assert set(task.arguments) == set(task.tool["function"]["parameters"]["required"])
