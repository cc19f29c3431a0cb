"""The moves in `specs/moves.md` and in `flashrt.fsm.moves` say the same."""

from collections.abc import Iterable
from enum import Enum

import pytest

from flashrt.fsm.boundary import Boundary
from flashrt.fsm.lifecycle import Life
from flashrt.fsm.moves import MOVES, Move, Step
from flashrt.fsm.sink import SinkState
from tests.specs.markdown import expect_columns, read_folder

COLUMNS = (
    "row", "move", "request", "engine", "boundary", "sink", "life", "boundary events",
    "sink event", "because",
)  # fmt: skip
(BLOCK,) = [block for block in read_folder() if block.kind == "moves"]


def cell(value: Enum | Iterable[Enum] | None) -> str:
    """A field as the specification writes it: names in the order of their enum, or a dash."""
    if value is None or isinstance(value, Enum):
        return value.name if value else "-"
    members = value if isinstance(value, tuple) else sorted(value, key=lambda member: member.value)
    return " ".join(member.name for member in members) or "-"


def cells(move: Move) -> tuple[str, ...]:
    """A move as its row in the specification, without label and reason."""
    return (
        move.step.name, cell(move.request), cell(move.hold), cell(move.boundary), cell(move.sink),
        cell(move.fires_life), cell(move.fires_boundary), cell(move.fires_sink),
    )  # fmt: skip


def test_the_marker_leads_to_the_moves():
    """The specification is about the moves that the walk takes, and its columns are compared."""
    expect_columns(BLOCK, COLUMNS)

    assert BLOCK.target() is MOVES


@pytest.mark.parametrize(
    ("row", "move"),
    [
        pytest.param(row, move, id=f"{row[0]} {row[1]}")
        for row, move in zip(BLOCK.rows, MOVES, strict=False)
    ],
)
def test_a_row_says_what_the_move_does(row: tuple[str, ...], move: Move):
    """State by state and event by event."""
    assert row[1:-1] == cells(move)


def test_spec_and_code_have_the_same_moves():
    """No row is missing on either side."""
    assert [row[1] for row in BLOCK.rows] == [move.step.name for move in MOVES]


def test_every_step_has_a_move():
    """A name for something that never happens is not kept."""
    assert {move.step for move in MOVES} == set(Step)


def test_no_two_moves_of_a_step_can_be_taken_at_once():
    """A step, where the request stands and what the boundary is decide what happens."""
    for life in Life:
        for boundary in Boundary:
            for sink in SinkState:
                steps = [move.step for move in MOVES if applies(move, life, boundary, sink)]
                assert len(steps) == len(set(steps)), (life, boundary, sink)


def applies(move: Move, life: Life, boundary: Boundary, sink: SinkState) -> bool:
    """Whether a move's conditions on the three machines hold."""
    return all(
        not wanted or state in wanted
        for wanted, state in ((move.request, life), (move.boundary, boundary), (move.sink, sink))
    )
