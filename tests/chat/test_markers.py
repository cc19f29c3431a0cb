"""How events are written as text."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flashrt.chat.markers import (
    BLOCK_MARKERS,
    NAME_MAX,
    WRAPPERS,
    Marker,
    tag_name,
    text_markers,
)
from flashrt.fsm.reader import READER, Reading, ReadingEvent

NAMES = st.text("ab_.é =/\"'", min_size=1, max_size=9).filter(lambda name: name.strip(" \"'"))
ALL = {m for markers in text_markers((), True).values() for m in markers}
UNWRITTEN = {
    ReadingEvent.OBJECT_OPEN,
    ReadingEvent.OBJECT_NAMED,
    ReadingEvent.OBJECT_CLOSE,
    ReadingEvent.OTHER,
}
SPELLINGS = {
    ReadingEvent.FUNCTION_OPEN: ("<function={}>", "<function name={}>", "< function = {}>"),
    ReadingEvent.PARAMETER_OPEN: ("<parameter={}>", "<parameter  name = {}>", "<parameter ={}>"),
    ReadingEvent.FUNCTION_CLOSE: ("</function>", "</ function >", "< /function>"),
    ReadingEvent.PARAMETER_CLOSE: ("</parameter>", "</parameter >"),
    ReadingEvent.WRAPPER_OPEN: tuple(f"<{wrapper}>" for wrapper in WRAPPERS),
    ReadingEvent.WRAPPER_CLOSE: tuple(f"</{wrapper}>" for wrapper in WRAPPERS),
} | {event: (literal,) for literal, event in BLOCK_MARKERS.items()}


def matching(event: ReadingEvent, text: str) -> list[Marker]:
    """The markers of an event that are whole at the start of a text."""
    return [m for m in ALL if m.event is event and m.full.match(text)]


def waiting(event: ReadingEvent, text: str) -> bool:
    """Whether a text may still become the event."""
    return any(m.could_begin(text) for m in ALL if m.event is event)


@pytest.mark.parametrize(
    ("event", "form"), [(event, form) for event, forms in SPELLINGS.items() for form in forms]
)
@given(name=NAMES, behind=st.text("<>a/", max_size=4))
def test_a_marker_could_begin_until_it_is_whole(
    event: ReadingEvent, form: str, name: str, behind: str
):
    """Every proper beginning waits, the whole matches whatever follows, and never both."""
    whole = form.format(name)

    for n in range(1, len(whole)):
        assert waiting(event, whole[:n])
        assert matching(event, whole[:n]) == []
    (marker,) = matching(event, whole + behind)
    found = marker.full.match(whole + behind)
    assert found is not None
    assert found[0] == whole
    assert not waiting(event, whole + behind)


def test_every_event_that_is_written_has_a_spelling():
    """And the four that the reader finds out for itself have none."""
    assert {marker.event for marker in ALL} == set(SPELLINGS) == set(ReadingEvent) - UNWRITTEN


@pytest.mark.parametrize("name", ["", " ", '""', "a\nb", "a<b", "n" * (NAME_MAX + 1)])
def test_what_is_no_name_makes_no_marker(name: str):
    """Neither whole, nor worth waiting for once that is certain."""
    for form in SPELLINGS[ReadingEvent.FUNCTION_OPEN]:
        assert matching(ReadingEvent.FUNCTION_OPEN, form.format(name)) == []
        assert not waiting(ReadingEvent.FUNCTION_OPEN, form.format(name))


@pytest.mark.parametrize(
    ("written", "name"),
    [
        ("run", "run"),
        (" run ", "run"),
        ('"run"', "run"),
        ("'run'", "run"),
        ('"run', "run"),
        ('limit type="integer"', "limit"),
        ('"limit" type="integer"', "limit"),
        ("two words", "two words"),
        ("' _=_", "' _=_"),
        ("a=b", "a=b"),
    ],
)
def test_a_name_is_read_out_of_its_tag(written: str, name: str):
    """Quotes and further attributes are none of it."""
    assert tag_name(written) == name


@given(NAMES)
def test_a_name_is_never_empty(name: str):
    """Whatever quotes stand around it."""
    assert tag_name(name)


@pytest.mark.parametrize("state", sorted(set(Reading), key=lambda state: state.name))
@pytest.mark.parametrize("control", [(), tuple(BLOCK_MARKERS)])
def test_a_state_looks_only_for_markers_with_a_row(state: Reading, control: tuple[str, ...]):
    """And for those that are control tokens not at all."""
    events = {marker.event for marker in text_markers(control, True)[state]}
    by_id = {BLOCK_MARKERS[literal] for literal in control}

    assert events == set(READER.legal(state)) - UNWRITTEN - by_id


def test_without_tools_calls_are_not_looked_for():
    """Nothing is held back for a call that cannot be."""
    events = {marker.event for marker in text_markers((), False)[Reading.TEXT]}

    assert events == {ReadingEvent.THINK_OPEN, ReadingEvent.THINK_CLOSE}
