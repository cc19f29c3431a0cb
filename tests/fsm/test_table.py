"""A table that cannot be right fails when it is built; a machine moves along rows only."""

from enum import Enum, auto

import attrs
import pytest

from flashrt.fsm.table import IllegalTransition, Machine, MalformedTable, Table


class Door(Enum):
    """Where is the door?"""

    OPEN = auto()
    SHUT = auto()
    WALLED = auto()


class DoorEvent(Enum):
    """What happens to it."""

    PULL = auto()
    PUSH = auto()
    BRICK = auto()


ROWS = {
    (Door.OPEN, DoorEvent.PULL): Door.SHUT,
    (Door.SHUT, DoorEvent.PUSH): Door.OPEN,
    (Door.SHUT, DoorEvent.PULL): Door.SHUT,
    (Door.SHUT, DoorEvent.BRICK): Door.WALLED,
    (Door.WALLED, DoorEvent.PUSH): Door.WALLED,
}
DOOR = Table(name="door", initial=Door.OPEN, terminal=frozenset({Door.WALLED}), rows=ROWS)


def test_a_table_knows_its_states_and_events():
    """All members of both enums, in their order."""
    assert DOOR.states == tuple(Door)
    assert DOOR.events == tuple(DoorEvent)


def test_legal_events_are_those_with_a_row():
    """In the order of the rows."""
    assert DOOR.legal(Door.SHUT) == (DoorEvent.PUSH, DoorEvent.PULL, DoorEvent.BRICK)
    assert DOOR.legal(Door.WALLED) == (DoorEvent.PUSH,)


def test_rows_cannot_be_changed_once_built():
    """Neither through the table nor through the dict it was built from."""
    rows = dict(ROWS)
    table = attrs.evolve(DOOR, rows=rows)

    rows[Door.OPEN, DoorEvent.BRICK] = Door.WALLED

    assert table.legal(Door.OPEN) == (DoorEvent.PULL,)
    with pytest.raises(TypeError):
        table.rows[Door.OPEN, DoorEvent.BRICK] = Door.WALLED


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"rows": {**ROWS, (Door.SHUT, DoorEvent.BRICK): Door.SHUT}}, "WALLED is unreachable"),
        (
            {"rows": {p: s for p, s in ROWS.items() if p[0] is not Door.SHUT}},
            "WALLED is unreachable",
        ),
        ({"terminal": frozenset()}, "WALLED has no way out"),
        ({"terminal": frozenset({Door.WALLED, Door.SHUT})}, "terminal SHUT has a way out"),
        (
            {"rows": {**ROWS, (Door.SHUT, DoorEvent.BRICK): Door.OPEN}, "initial": Door.WALLED},
            "OPEN is unreachable",
        ),
        (
            {"rows": {**ROWS, (Door.WALLED, DoorEvent.BRICK): Door.OPEN}},
            "terminal WALLED has a way out",
        ),
    ],
)
def test_a_malformed_table_fails_when_built(change: dict, complaint: str):
    """Unreachable states, dead ends and ways out of the end are named; so an import shows them."""
    with pytest.raises(MalformedTable, match=f"door: {complaint}"):
        attrs.evolve(DOOR, **change)


def test_an_event_that_moves_nothing_fails_the_table():
    """Every event has a row somewhere."""
    rows = {pair: after for pair, after in ROWS.items() if pair[1] is not DoorEvent.PUSH}

    with pytest.raises(MalformedTable, match="door: PUSH moves nothing"):
        attrs.evolve(DOOR, rows=rows)


def test_a_machine_starts_at_the_beginning_and_moves_along_rows():
    """`fire` returns the state that it moved to."""
    machine = Machine(DOOR)

    trail = [machine.state, *map(machine.fire, (DoorEvent.PULL, DoorEvent.PULL, DoorEvent.BRICK))]

    assert trail == [Door.OPEN, Door.SHUT, Door.SHUT, Door.WALLED]
    assert machine.over
    assert repr(machine) == "<door WALLED>"


def test_a_terminal_state_may_absorb_a_late_event():
    """A row that stays is no way out."""
    machine = Machine(DOOR, Door.WALLED)

    assert machine.fire(DoorEvent.PUSH) is Door.WALLED
    assert machine.over


def test_an_event_without_a_row_raises_and_moves_nothing():
    """The message names the machine, the event, the state, and what would have been legal."""
    machine = Machine(DOOR)

    with pytest.raises(IllegalTransition) as refused:
        machine.fire(DoorEvent.BRICK)

    assert str(refused.value) == "door: BRICK in OPEN (legal: PULL)"
    assert machine.state is Door.OPEN
    assert not machine.over
