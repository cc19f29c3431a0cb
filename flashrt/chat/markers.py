"""How the reader's events are written: as control tokens if the vocabulary has them, or as text."""

import re
from collections.abc import Container, Mapping, Sequence
from functools import cache

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

WRAPPERS = (
    "function_invocation",
    "function_call",
    "function_calls",
    "tool_calls",
    "tool_invocation",
    "tools",
)
"""Frames that models put around a call in place of `<tool_call>`, or inside it."""

NAME = rf"(?=[^<>\n]*[^<>\s\"'])([^<>\n]{{1,{NAME_MAX}}})"
NAME_SO_FAR = rf"[^<>\n]{{0,{NAME_MAX}}}"
BLANK = "[ \t]{0,8}"
ATTRIBUTE = re.compile(r"""\s+[\w-]+\s*=\s*["'\w]""")


@attrs.frozen
class Marker:
    """One way to write an event as text. `full` has the name that it bears as its only group."""

    event: ReadingEvent
    full: re.Pattern[str]
    partial: re.Pattern[str]

    @classmethod
    def spelled(cls, event: ReadingEvent, *elements: str) -> "Marker":
        """From regular expressions that follow each other, each short of the name atomic."""
        partial = ""
        for element in reversed(elements[:-1]):
            partial = f"(?:{NAME_SO_FAR if element == NAME else element}{partial})?"
        return cls(event, re.compile("".join(elements)), re.compile(partial))

    def could_begin(self, text: str) -> bool:
        """Whether `text` is the beginning of this marker, its end still to come."""
        return self.partial.fullmatch(text) is not None


def tag_name(written: str) -> str:
    """The name in a tag, without the quotes and further attributes that models add."""
    name = written.strip()
    attribute = ATTRIBUTE.search(name)
    if attribute:
        name = name[: attribute.start()]
    if name[0] in "\"'":
        name = name[1:].partition(name[0])[0] or name.strip("\"'")
    return name.rstrip("\"'").strip() or written.strip()


def _opening(event: ReadingEvent, word: str) -> list[Marker]:
    equals = (BLANK, "=", BLANK)
    return [
        Marker.spelled(event, "<", BLANK, *word, *equals, NAME, ">"),
        Marker.spelled(event, "<", BLANK, *word, "[ \t]{1,8}", *"name", *equals, NAME, ">"),
    ]


def _closing(event: ReadingEvent, word: str) -> Marker:
    return Marker.spelled(event, "<", BLANK, "/", BLANK, *word, BLANK, ">")


def _framing(event: ReadingEvent, before: str, wrapper: str) -> Marker:
    literal = f"{before}{wrapper}>"
    marker = Marker.spelled(event, *map(re.escape, literal))
    return attrs.evolve(marker, full=re.compile(f"{before}({wrapper})>"))


CALL_SPELLINGS = (
    *_opening(ReadingEvent.FUNCTION_OPEN, "function"),
    *_opening(ReadingEvent.PARAMETER_OPEN, "parameter"),
    _closing(ReadingEvent.FUNCTION_CLOSE, "function"),
    _closing(ReadingEvent.PARAMETER_CLOSE, "parameter"),
    *(_framing(ReadingEvent.WRAPPER_OPEN, "<", wrapper) for wrapper in WRAPPERS),
    *(_framing(ReadingEvent.WRAPPER_CLOSE, "</", wrapper) for wrapper in WRAPPERS),
)
BLOCK_SPELLINGS = {
    literal: Marker.spelled(event, *map(re.escape, literal))
    for literal, event in BLOCK_MARKERS.items()
}


def text_markers(control: Container[str], reads_calls: bool) -> Mapping[Reading, Sequence[Marker]]:
    """For each state the markers that are read from text there: those with a row in the table."""
    return _by_state(frozenset(m for m in BLOCK_MARKERS if m in control), reads_calls)


@cache
def _by_state(by_id: frozenset[str], reads_calls: bool) -> Mapping[Reading, Sequence[Marker]]:
    markers = list(CALL_SPELLINGS) if reads_calls else []
    markers += [
        marker
        for literal, marker in BLOCK_SPELLINGS.items()
        if literal not in by_id and (reads_calls or literal not in CALL_MARKERS)
    ]
    legal = {state: set(READER.legal(state)) for state in Reading}
    return {state: tuple(m for m in markers if m.event in legal[state]) for state in Reading}
