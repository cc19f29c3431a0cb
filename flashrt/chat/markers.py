"""How the reader's events are written: as control tokens if the vocabulary has them, or as text."""

import re
from collections.abc import Container

import attrs

from flashrt.fsm.reader import READER, Reading, ReadingEvent

NAME_MAX = 256
"""Characters in the name of a tool or a parameter; what is longer is no name."""

BLOCK_MARKERS = {
    "<think>": ReadingEvent.THINK_OPEN,
    "</think>": ReadingEvent.THINK_CLOSE,
    "<tool_call>": ReadingEvent.CALL_OPEN,
    "</tool_call>": ReadingEvent.CALL_CLOSE,
}
CALL_MARKERS = {m for m, event in BLOCK_MARKERS.items() if "CALL" in event.name}

NAME = rf"(?=[^<>\n]*[^<>\s])([^<>\n]{{1,{NAME_MAX}}})"
FULL = {
    ReadingEvent.FUNCTION_OPEN: re.compile(rf"<function={NAME}>"),
    ReadingEvent.PARAMETER_OPEN: re.compile(rf"<parameter={NAME}>"),
    ReadingEvent.FUNCTION_CLOSE: re.compile(r"</function>"),
    ReadingEvent.PARAMETER_CLOSE: re.compile(r"</parameter>"),
}
OPENINGS = {
    ReadingEvent.FUNCTION_OPEN: "<function=",
    ReadingEvent.PARAMETER_OPEN: "<parameter=",
    ReadingEvent.FUNCTION_CLOSE: "</function>",
    ReadingEvent.PARAMETER_CLOSE: "</parameter>",
}
OPEN_NAME = re.compile(rf"[^<>\n]{{0,{NAME_MAX}}}")


@attrs.frozen
class Marker:
    """One way to write an event as text."""

    event: ReadingEvent
    opening: str
    full: re.Pattern[str]

    def could_begin(self, text: str) -> bool:
        """Whether `text` is the beginning of this marker, its end still to come."""
        if len(text) < len(self.opening):
            return self.opening.startswith(text)
        named = self.opening.endswith("=") and text.startswith(self.opening)
        return named and OPEN_NAME.fullmatch(text, len(self.opening)) is not None


def text_markers(control: Container[str], reads_calls: bool) -> dict[Reading, tuple[Marker, ...]]:
    """For each state the markers that are read from text there: those with a row in the table."""
    markers = [Marker(event, OPENINGS[event], FULL[event]) for event in FULL]
    markers += [
        Marker(event, literal, re.compile(re.escape(literal)))
        for literal, event in BLOCK_MARKERS.items()
        if literal not in control and (reads_calls or literal not in CALL_MARKERS)
    ]
    return {state: tuple(m for m in markers if m.event in READER.legal(state)) for state in Reading}
