"""The reader of specifications is strict: what it does not understand, it refuses."""

import pytest

from tests.specs.markdown import FOLDER, BadSpec, DecisionSpec, TableSpec, read_folder, read_text

SERVER = "<!-- table: flashrt.fsm.server:SERVER -->"
TABLE = """
| row | state | event | next | because |
|-----|-------|-------|------|---------|
| V1 | LOADING | LOADED | READY | so it is |
"""
DECISION = """<!-- decision: builtins:max -->

| row | raining | windy | outcome | because       |
|-----|---------|-------|---------|---------------|
| X1  | yes     | -     | STAY    | wet           |
| X2  | no      | yes   | SAIL    | what luck     |
| X3  | no      | no    | WALK    | a calm day    |
"""


def test_labels_are_unique_in_the_folder():
    """A label means one row, so that a search for it finds the row, its tests and its reasons."""
    labels = [label for block in read_folder() for label in block.labels]

    assert len(labels) == len(set(labels))


def test_the_labels_of_a_table_count_up():
    """A letter and the row's number, from 1, in the order in which they are read."""
    for block in read_folder():
        letter = block.labels[0].rstrip("0123456789")
        assert list(block.labels) == [f"{letter}{n}" for n in range(1, len(block.rows) + 1)], block


def test_every_spec_is_in_the_readme():
    """The folder's README lists every specification."""
    readme = (FOLDER / "README.md").read_text()
    files = {block.file for block in read_folder()}

    assert [file for file in sorted(files) if f"({file})" not in readme] == []


def test_a_table_is_read_as_written():
    """Marker, cells and terminal states come out as they went in."""
    (block,) = read_text(f"# Title\n\n{SERVER}\n{TABLE}\nTerminal: STOPPED, GONE.\n")

    assert block.address == "flashrt.fsm.server:SERVER"
    assert block.rows == (("V1", "LOADING", "LOADED", "READY", "so it is"),)
    assert block.terminal == ("STOPPED", "GONE")


def test_a_marker_in_a_code_fence_is_an_example():
    """Prose about specifications may show one."""
    assert list(read_text(f"```\n{SERVER}\n```\n")) == []


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("<!-- tabel: flashrt.fsm.server:SERVER -->\n" + TABLE, "not a marker"),
        ("<!-- table: SERVER -->\n" + TABLE, "not a marker"),
        (SERVER + "\n\nwords\n", "no table"),
        (SERVER + TABLE.replace("| READY ", ""), "want 5 full cells"),
        (SERVER + TABLE.replace("so it is", ""), "want 5 full cells"),
        (SERVER + TABLE.replace("next", "after") + "\nTerminal: STOPPED.\n", "columns"),
        (SERVER + TABLE, "Terminal"),
        (SERVER + TABLE + "\n" + SERVER + TABLE + "\nTerminal: none.\n", "Terminal"),
    ],
)
def test_a_spec_that_cannot_be_read_is_refused(text: str, complaint: str):
    """A typing mistake in a specification never makes a table disappear in silence."""
    with pytest.raises(BadSpec, match=complaint):
        [TableSpec.from_block(block) for block in read_text(text)]


def test_a_decision_is_read_as_written():
    """Yes, no and 'does not matter' pick the one row that decides."""
    (spec,) = [DecisionSpec.from_block(block) for block in read_text(DECISION)]

    assert spec.facts == ("raining", "windy")
    assert [row.outcome for row in spec.deciding((True, False))] == ["STAY"]
    assert [row.outcome for row in spec.deciding((False, True))] == ["SAIL"]


@pytest.mark.parametrize(
    ("old", "new", "rows"),
    [
        ("| X3  | no      | no ", "| X3  | no      | yes", 0),
        ("| no      | yes", "| -       | yes", 2),
    ],
)
def test_gaps_and_overlaps_show(old: str, new: str, rows: int):
    """A situation that no row or two rows decide is seen as such."""
    (spec,) = [DecisionSpec.from_block(b) for b in read_text(DECISION.replace(old, new))]
    situation = (False, False) if rows == 0 else (True, True)

    assert len(spec.deciding(situation)) == rows


def test_a_fact_is_yes_no_or_dash():
    """Nothing else, so that a typing mistake is no third value."""
    with pytest.raises(BadSpec, match="perhaps"):
        [DecisionSpec.from_block(b) for b in read_text(DECISION.replace("yes  ", "perhaps", 1))]
