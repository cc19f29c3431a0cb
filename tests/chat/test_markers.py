"""How events are written as text."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flashrt.chat.markers import BLOCK_MARKERS, NAME_MAX, Marker, text_markers
from flashrt.fsm.reader import READER, Reading, ReadingEvent

NAMES = st.text("ab_.é =/\"'", min_size=1, max_size=9).filter(str.strip)
ALL = {m.event: m for markers in text_markers((), True).values() for m in markers}


def written(marker: Marker, name: str) -> str:
    """A whole marker."""
    return f"{marker.opening}{name}>" if marker.opening.endswith("=") else marker.opening


@pytest.mark.parametrize("event", [e for e in ReadingEvent if e is not ReadingEvent.OTHER])
@given(name=NAMES, behind=st.text("<>a/", max_size=4))
def test_a_marker_could_begin_until_it_is_whole(event: ReadingEvent, name: str, behind: str):
    """Every proper beginning waits, the whole matches whatever follows, and never both."""
    marker = ALL[event]
    whole = written(marker, name)

    for n in range(1, len(whole)):
        assert marker.could_begin(whole[:n])
        assert marker.full.match(whole[:n]) is None
    found = marker.full.match(whole + behind)
    assert found is not None
    assert found[0] == whole
    assert not marker.could_begin(whole + behind)


@pytest.mark.parametrize("name", ["", " ", "a\nb", "a<b", "n" * (NAME_MAX + 1)])
def test_what_is_no_name_makes_no_marker(name: str):
    """Neither whole, nor worth waiting for once that is certain."""
    marker = ALL[ReadingEvent.FUNCTION_OPEN]

    assert marker.full.match(written(marker, name)) is None
    assert not marker.could_begin(written(marker, name))


@pytest.mark.parametrize("state", sorted(set(Reading), key=lambda state: state.name))
@pytest.mark.parametrize("control", [(), tuple(BLOCK_MARKERS)])
def test_a_state_looks_only_for_markers_with_a_row(state: Reading, control: tuple[str, ...]):
    """And for those that are control tokens not at all."""
    events = {marker.event for marker in text_markers(control, True)[state]}
    by_id = {BLOCK_MARKERS[literal] for literal in control}

    assert events == set(READER.legal(state)) - {ReadingEvent.OTHER} - by_id


def test_without_tools_calls_are_not_looked_for():
    """Nothing is held back for a call that cannot be."""
    events = {marker.event for marker in text_markers((), False)[Reading.TEXT]}

    assert events == {ReadingEvent.THINK_OPEN, ReadingEvent.THINK_CLOSE}
