"""The reader's table keeps a call's promises whatever is read."""

import pytest

from flashrt.fsm.reader import COMPLETES, READER, Reading, ReadingEvent
from tests.specs.markdown import TableSpec, read_folder

IN_TAGS = {Reading.FUNCTION, Reading.VALUE, Reading.VALUE_OVER, Reading.LEAVING}
OPEN_CALL = {*IN_TAGS, Reading.JSON}
(SPEC,) = (
    TableSpec.from_block(block)
    for block in read_folder()
    if block.address == "flashrt.fsm.reader:READER"
)


def completing() -> set[tuple[Reading, ReadingEvent]]:
    """The rows whose reason says that the call is complete."""
    return {
        (Reading[state], ReadingEvent[event])
        for _, state, event, _, because in SPEC.block.rows
        if "complete" in because
    }


def test_a_call_is_left_only_as_complete_or_for_good():
    """The rows that leave a named call say *complete*; JSON that breaks off says *stays open*."""
    leaving = {
        (before, event)
        for (before, event), after in READER.rows.items()
        if before in OPEN_CALL and after not in OPEN_CALL
    }

    assert completing() == COMPLETES
    assert leaving == COMPLETES | {(Reading.JSON, ReadingEvent.OTHER)}


def test_a_call_is_entered_only_by_a_name():
    """Of a function, or of an object."""
    entering = {
        event
        for (before, event), after in READER.rows.items()
        if before not in OPEN_CALL and after in OPEN_CALL
    }

    assert entering == {ReadingEvent.FUNCTION_OPEN, ReadingEvent.OBJECT_NAMED}


@pytest.mark.parametrize("state", [Reading.TEXT, Reading.THINKING, Reading.VALUE])
def test_where_text_is_wanted_nothing_is_other(state: Reading):
    """In text, thinking and values, what is no marker is what the state is about."""
    assert ReadingEvent.OTHER not in READER.legal(state)


@pytest.mark.parametrize("state", sorted(set(Reading), key=lambda state: state.name))
def test_from_everywhere_text_can_be_reached(state: Reading):
    """No state is a trap."""
    reached = {state}
    for _ in Reading:
        reached |= {after for (before, _), after in READER.rows.items() if before in reached}

    assert Reading.TEXT in reached
