"""Reads thinking, text and tool calls out of an answer, in any way it may be cut."""

import string
from collections.abc import Callable, Container, Sequence
from typing import Protocol

import attrs

from flashrt.chat.arguments import ArgumentsText, ToolSchemas
from flashrt.chat.deltas import Delta, TextDelta, ThinkingDelta, ToolCallArguments, ToolCallStart
from flashrt.chat.markers import BLOCK_MARKERS, CALL_MARKERS, text_markers
from flashrt.chat.request import Json
from flashrt.fsm.reader import READER, Reading, ReadingEvent
from flashrt.fsm.table import Machine


@attrs.frozen
class Said:
    """A delta, and where in the answer's text the first character of a TextDelta stands."""

    delta: Delta
    at: int


class Reads(Protocol):
    """Turns text and control tokens into deltas; `position` counts characters read."""

    position: int
    complete_calls: int

    @property
    def is_thinking(self) -> bool: ...
    @property
    def is_text(self) -> bool: ...
    def text(self, text: str) -> list[Said]: ...
    def control(self, literal: str) -> list[Said]: ...
    def finish(self, *, cut_off: bool) -> list[Said]: ...


class PlainReader:
    """All text is text; control tokens are not shown. For answers without structure."""

    is_thinking = False
    is_text = True

    def __init__(self) -> None:
        self.position = 0
        self.complete_calls = 0

    def text(self, text: str) -> list[Said]:
        """As it stands."""
        at = self.position
        self.position += len(text)
        return [Said(TextDelta(text), at)] if text else []

    def control(self, literal: str) -> list[Said]:
        """Not shown."""
        self.position += len(literal)
        return []

    def finish(self, *, cut_off: bool) -> list[Said]:
        """Nothing is ever held back."""
        return []


# -- the reader --------------------------------------------------------------------------------

BLANK_HELD = (Reading.CALL, Reading.CALLED, Reading.VALUE_OVER, Reading.LEAVING)
"""States between two things: blanks in them wait until it is known what they belong to."""

STARTS_AFRESH = (Reading.TEXT, Reading.THINKING, Reading.FUNCTION, Reading.VALUE)
"""States whose text is stripped of newlines at its start when they are entered by a marker."""

COMPLETES = {
    (Reading.FUNCTION, ReadingEvent.FUNCTION_CLOSE),
    (Reading.FUNCTION, ReadingEvent.CALL_CLOSE),
    (Reading.FUNCTION, ReadingEvent.CALL_OPEN),
    (Reading.VALUE_OVER, ReadingEvent.FUNCTION_CLOSE),
    (Reading.VALUE_OVER, ReadingEvent.CALL_CLOSE),
    (Reading.VALUE_OVER, ReadingEvent.CALL_OPEN),
    (Reading.LEAVING, ReadingEvent.CALL_CLOSE),
    (Reading.LEAVING, ReadingEvent.CALL_OPEN),
}
"""The rows of specs/reader.md whose reason says *complete*."""


class Reader:
    """Moves along the table of `flashrt.fsm.reader` and emits what each state makes of the text.

    `buffer` holds text that may still become a marker; `held` is what was read as a marker, or as
    blanks around one, and turns back into text if the guess was wrong.
    """

    def __init__(
        self,
        *,
        control: Container[str],
        tools: Sequence[Json],
        new_call_id: Callable[[], str],
        opens_thinking: bool = False,
    ) -> None:
        """`control`: the vocabulary's control tokens; a marker among them is read by id only."""
        self.position = 0
        self.complete_calls = 0
        self._machine = Machine(READER, Reading.THINKING if opens_thinking else Reading.TEXT)
        self._markers = text_markers(control, bool(tools))
        self._reads_calls = bool(tools)
        self._schemas = ToolSchemas.of(tools)
        self._new_call_id = new_call_id
        self._said: list[Said] = []
        self._buffer = ""
        self._held = ""
        self._held_at = 0
        self._at_start = opens_thinking  # newlines at the start of a block are not part of it
        self._newlines = ""  # nor at its end, once that is known to be the end
        self._calls = 0
        self._tool = ""
        self._arguments = ArgumentsText()

    @property
    def is_thinking(self) -> bool:
        """Whether we are inside the think block."""
        return self._machine.state is Reading.THINKING

    @property
    def is_text(self) -> bool:
        """Whether we are in visible text."""
        return self._machine.state is Reading.TEXT

    def text(self, text: str) -> list[Said]:
        """Take further text."""
        self._buffer += text
        self.position += len(text)
        while self._step():
            pass
        return self._take()

    def control(self, literal: str) -> list[Said]:
        """Take a control token. One that is no marker here is not shown, except in a value."""
        self._settle()
        at = self.position
        self.position += len(literal)
        event = BLOCK_MARKERS.get(literal)
        if literal in CALL_MARKERS and not self._reads_calls:
            event = None
        if event is None or not self._legal(event):
            self._give_up_guess()
        if event is not None and self._legal(event):
            self._marker(event, literal, at)
        elif self._machine.state is Reading.VALUE or literal in CALL_MARKERS:
            self._plain(literal, at)
        return self._take()

    def finish(self, *, cut_off: bool) -> list[Said]:
        """The answer is over: `cut_off`, or ended by the model itself, which completes a call."""
        in_text = self._machine.state in (Reading.TEXT, Reading.THINKING)
        if in_text or not cut_off:
            self._settle()
        if not cut_off:
            self._complete_at_end()
        return self._take()

    # -- finding markers ------------------------------------------------------------------------

    def _step(self) -> bool:
        """Decide about one more piece at the front of the buffer; False if it must wait."""
        if not self._buffer:
            return False
        at = self.position - len(self._buffer)
        start = self._buffer.find("<")
        if start != 0:
            plain = self._buffer if start < 0 else self._buffer[:start]
            taken = self._plain(plain, at)
            self._buffer = self._buffer[taken:]
            return True
        markers = self._markers[self._machine.state]
        for marker in markers:
            found = marker.full.match(self._buffer)
            if found:
                self._buffer = self._buffer[found.end() :]
                self._marker(marker.event, found[0], at, *found.groups())
                return True
        if any(marker.could_begin(self._buffer) for marker in markers):
            return False
        taken = self._plain("<", at)
        self._buffer = self._buffer[taken:]
        return True

    def _settle(self) -> None:
        """No marker goes on in what comes now: the rest of the buffer is text."""
        while self._buffer:
            taken = self._plain(self._buffer, self.position - len(self._buffer))
            self._buffer = self._buffer[taken:]

    def _legal(self, event: ReadingEvent) -> bool:
        return (self._machine.state, event) in READER.rows

    def _take(self) -> list[Said]:
        said, self._said = self._said, []
        return said

    # -- what a marker does ---------------------------------------------------------------------

    def _marker(self, event: ReadingEvent, literal: str, at: int, name: str = "") -> None:
        before = self._machine.state
        after = self._machine.fire(event)
        if (before, event) in COMPLETES:
            self._complete(value_open=before is not Reading.FUNCTION)
        if after is Reading.FUNCTION and event is ReadingEvent.FUNCTION_OPEN:
            self._start_call(name.strip())
        elif after is Reading.VALUE:
            self._start_value(name.strip(), value_open=before is Reading.VALUE_OVER)
        guess = after in (Reading.VALUE_OVER, Reading.LEAVING)
        if guess and before is not Reading.VALUE:  # the guess before was wrong
            self._value(self._held)
        if guess:
            literal = self._newlines + literal
            self._newlines = ""
        self._held, self._held_at = literal, at
        if before is not after and after in STARTS_AFRESH:
            self._at_start, self._newlines = True, ""

    def _start_call(self, name: str) -> None:
        self._tool = name
        self._arguments = ArgumentsText()
        self._say(ToolCallStart(self._calls, self._new_call_id(), name))
        self._say_arguments(self._arguments.open())

    def _start_value(self, name: str, *, value_open: bool) -> None:
        ended = self._arguments.end_value() if value_open else ""
        kinds = self._schemas.kinds(self._tool, name)
        self._say_arguments(ended + self._arguments.name(name, kinds))

    def _complete(self, *, value_open: bool) -> None:
        ended = self._arguments.end_value() if value_open else ""
        self._say_arguments(ended + self._arguments.close())
        self._calls += 1
        self.complete_calls += 1

    def _complete_at_end(self) -> None:
        match self._machine.state:
            case Reading.FUNCTION:
                self._complete(value_open=False)
            case Reading.VALUE_OVER | Reading.LEAVING:
                self._complete(value_open=True)
            case Reading.CALL:
                self._machine.fire(ReadingEvent.OTHER)
                self._show(self._held, self._held_at)

    # -- what text does -------------------------------------------------------------------------

    def _plain(self, text: str, at: int) -> int:
        """Take plain text, or as much of it as this state has a use for; how much that was."""
        match self._machine.state:
            case Reading.TEXT:
                self._show(text, at)
            case Reading.THINKING:
                self._think(text)
            case Reading.VALUE:
                self._value(text)
            case Reading.FUNCTION:
                self._stray(text, at)
            case _:
                return self._between(text, at)
        return len(text)

    def _between(self, text: str, at: int) -> int:
        blank = len(text) - len(text.lstrip())
        if blank:
            self._held += text[:blank]
            return blank
        self._wrong_guess()
        return 0

    def _stray(self, text: str, at: int) -> None:
        """Text where none belongs."""
        if not text.isspace():
            self._machine.fire(ReadingEvent.OTHER)
        shown = self._trimmed(text, string.whitespace)
        if shown:
            self._say(TextDelta(shown), at + len(text) - len(self._newlines) - len(shown))

    def _give_up_guess(self) -> None:
        """A control token that is no marker here is no blank either."""
        if self._machine.state in BLANK_HELD:
            self._wrong_guess()

    def _wrong_guess(self) -> None:
        """What we held was text."""
        before = self._machine.state
        after = self._machine.fire(ReadingEvent.OTHER)
        if after is Reading.VALUE:
            self._value(self._held)
        elif before is Reading.CALL:
            self._show(self._held, self._held_at)

    def _show(self, text: str, at: int) -> None:
        if self._at_start:
            stripped = text.lstrip("\n")
            at += len(text) - len(stripped)
            text = stripped
        if text:
            self._at_start = False
            self._say(TextDelta(text), at)

    def _think(self, text: str) -> None:
        shown = self._trimmed(text, "\n")
        if shown:
            self._say(ThinkingDelta(shown))

    def _trimmed(self, text: str, blanks: str) -> str:
        """What may be shown of a block that is stripped at both ends."""
        if self._at_start:
            text = text.lstrip(blanks)
        if not text:
            return ""
        self._at_start = False
        text = self._newlines + text
        shown = text.rstrip(blanks)
        self._newlines = text[len(shown) :]
        return shown

    def _value(self, text: str) -> None:
        """A value is stripped of one newline at its start and one at its end."""
        if self._at_start and text:
            text = text.removeprefix("\n")
            self._at_start = False
        text = self._newlines + text
        kept = text.removesuffix("\n")
        self._newlines = text[len(kept) :]
        self._say_arguments(self._arguments.value(kept))

    def _say_arguments(self, text: str) -> None:
        if text:
            self._say(ToolCallArguments(self._calls, text))

    def _say(self, delta: Delta, at: int = -1) -> None:
        self._said.append(Said(delta, at))
