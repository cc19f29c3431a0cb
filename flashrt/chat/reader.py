"""Reads thinking, text and tool calls out of an answer, in any way it may be cut."""

import string
from collections.abc import Callable, Container, Sequence

from flashrt.chat.calls import Calls
from flashrt.chat.deltas import Delta, TextDelta, ThinkingDelta
from flashrt.chat.drafts import CallsInThinking, Draft
from flashrt.chat.edges import Edges
from flashrt.chat.lines import Lines
from flashrt.chat.markers import BLOCK_MARKERS, CALL_MARKERS, Marker, tag_name, text_markers
from flashrt.chat.reads import Said
from flashrt.chat.request import Json
from flashrt.fsm.reader import COMPLETES, READER, Reading, ReadingEvent
from flashrt.fsm.table import Machine

BLANK_HELD = (Reading.CALL, Reading.CALLED, Reading.VALUE_OVER, Reading.LEAVING)
"""States between two things: blanks in them wait until it is known what they belong to."""

GUESSES = (*BLANK_HELD, Reading.OBJECT, Reading.DRAFT)
"""States that may turn out to have been something else."""

IN_JSON = (Reading.OBJECT, Reading.JSON)

TAGS_THAT_OPEN = (ReadingEvent.FUNCTION_OPEN, ReadingEvent.WRAPPER_OPEN)
"""Read in text only where a line begins, outside of code: elsewhere people write about them."""

STARTS_AFRESH = (Reading.TEXT, Reading.THINKING, Reading.FUNCTION, Reading.VALUE)
"""States whose text is stripped of newlines at its start when they are entered by a marker."""


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
        calls_in_thinking: CallsInThinking = CallsInThinking.TAKE_LAST,
    ) -> None:
        """`control`: the vocabulary's control tokens; a marker among them is read by id only."""
        self.position = 0
        self._machine = Machine(READER, Reading.THINKING if opens_thinking else Reading.TEXT)
        self._control = control
        self._tools = tools
        self._drafts = bool(tools) and calls_in_thinking is CallsInThinking.TAKE_LAST
        self._markers = text_markers(control, bool(tools))
        self._new_call_id = new_call_id
        self._said: list[Said] = []
        self._buffer = ""
        self._held = ""
        self._held_at = 0
        self._edges = Edges(at_start=opens_thinking)
        self._lines = Lines()
        self._wrappers: list[str] = []  # frames in other words that are open
        self._framed = False  # by the model's own marker, which nobody writes in passing
        self._calls = Calls(tools, new_call_id, self._say)
        self._draft: Draft | None = None

    @property
    def complete_calls(self) -> int:
        """How many calls are whole."""
        return self._calls.complete

    @property
    def is_thinking(self) -> bool:
        """Whether we are inside the think block."""
        return self._machine.state in (Reading.THINKING, Reading.DRAFT)

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
        if self._reads_on_in_draft(literal, event):
            return self._take()
        held_as_text = self._machine.state is Reading.OBJECT  # if it turns out to be no call
        if self._in_string() and (literal in CALL_MARKERS or not held_as_text):
            self._plain(literal, at)
            return self._take()
        if event is None or not self._legal(event):
            self._give_up_guess()
        if event is not None and self._legal(event):
            self._marker(event, literal, at)
        elif self._machine.state is Reading.VALUE or literal in CALL_MARKERS:
            self._plain(literal, at)
        return self._take()

    def finish(self, *, cut_off: bool) -> list[Said]:
        """The answer is over: `cut_off`, or ended by the model itself, which completes a call.

        What a cut leaves undecided is not shown, so every shorter answer begins the longer one.
        """
        if not cut_off:
            self._settle()
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
        state = self._machine.state
        markers = [] if self._in_string() else list(filter(self._may_be, self._markers[state]))
        for marker in markers:
            found = marker.full.match(self._buffer)
            name = tag_name(found[1]) if found and marker.full.groups else ""
            if found and (not name or self._may_be(marker, name)):
                self._buffer = self._buffer[found.end() :]
                self._marker(marker.event, found[0], at, name)
                return True
        if any(marker.could_begin(self._buffer) for marker in markers):
            return False
        taken = self._plain("<", at)
        self._buffer = self._buffer[taken:]
        return True

    def _may_be(self, marker: Marker, name: str | None = None) -> bool:
        """Whether this spelling of an event means it; without `name`, whether it still may."""
        match self._machine.state, marker.event:
            case Reading.THINKING, ReadingEvent.CALL_OPEN:
                return self._drafts
            case Reading.TEXT, event if event in TAGS_THAT_OPEN and not self._lines.may_open:
                return False
            case _, ReadingEvent.FUNCTION_OPEN if name is not None:
                in_frame = self._framed and self._machine.state is not Reading.TEXT
                return in_frame or name in self._calls.offered
            case _, ReadingEvent.WRAPPER_CLOSE:
                return bool(self._wrappers) and name in (None, self._wrappers[-1])
        return True

    def _settle(self) -> None:
        """No marker goes on in what comes now: the rest of the buffer is text."""
        while self._buffer:
            taken = self._plain(self._buffer, self.position - len(self._buffer))
            self._buffer = self._buffer[taken:]

    def _legal(self, event: ReadingEvent) -> bool:
        """Whether a control token means this here."""
        state = self._machine.state
        if "CALL" in event.name and not self._tools:
            return False
        if state is Reading.THINKING and event is ReadingEvent.CALL_OPEN:
            return self._drafts
        return (state, event) in READER.rows

    def _in_string(self) -> bool:
        return self._machine.state in IN_JSON and self._calls.object.in_string

    def _take(self) -> list[Said]:
        said, self._said = self._said, []
        return said

    # -- what a marker does ---------------------------------------------------------------------

    def _marker(self, event: ReadingEvent, literal: str, at: int, name: str = "") -> None:
        if self._machine.state is Reading.JSON and not self._calls.object.may_close:
            self._wrong_guess()
        before = self._machine.state
        after = self._machine.fire(event)
        if (before, event) in COMPLETES:
            self._complete(before)
        self._frame(event, before, name)
        if before is Reading.DRAFT:
            self._only_thought()
        if after is Reading.DRAFT:
            self._begin_draft(literal)
        elif after is Reading.FUNCTION and event is ReadingEvent.FUNCTION_OPEN:
            self._calls.open_function(name)
        elif after is Reading.VALUE:
            self._calls.open_parameter(name, value_open=before is Reading.VALUE_OVER)
        guess = after in (Reading.VALUE_OVER, Reading.LEAVING)
        if guess and before is not Reading.VALUE:  # the guess before was wrong
            self._value(self._held)
        if guess:
            literal = self._edges.give_back() + literal
        if before is after is Reading.CALL:
            self._held += literal
        else:
            self._held, self._held_at = literal, at
        thinks_on = before is Reading.DRAFT and after is Reading.THINKING
        if before is not after and after in STARTS_AFRESH and not thinks_on:
            self._edges.begin()

    def _frame(self, event: ReadingEvent, before: Reading, name: str) -> None:
        """Keep in mind what a call stands in."""
        match event:
            case ReadingEvent.CALL_OPEN:
                self._framed = True
            case ReadingEvent.WRAPPER_OPEN:
                self._framed = self._framed and before is Reading.CALL
                self._wrappers.append(name)
            case ReadingEvent.WRAPPER_CLOSE:
                self._wrappers.pop()
            case ReadingEvent.CALL_CLOSE:
                self._framed = False

    def _complete(self, state: Reading) -> None:
        """The call that was in `state` is whole."""
        if state is Reading.JSON:
            self._calls.complete_object()
        else:
            self._calls.complete_function(value_open=state is not Reading.FUNCTION)
        self._lines.restart()

    def _complete_at_end(self) -> None:
        match self._machine.state:
            case Reading.FUNCTION | Reading.VALUE_OVER | Reading.LEAVING as state:
                self._complete(state)
            case Reading.JSON if self._calls.object.is_whole:
                self._complete(Reading.JSON)
            case Reading.CALL | Reading.OBJECT:
                self._wrong_guess()
            case Reading.DRAFT:
                self._end_draft()

    # -- calls in JSON --------------------------------------------------------------------------

    def _begin_object(self, at: int) -> None:
        if self._machine.state is Reading.CALLED:
            self._held, self._held_at = "", at
        self._machine.fire(ReadingEvent.OBJECT_OPEN)
        self._calls.begin_object(any_name=self._framed)

    def _object(self, text: str) -> int:
        """Text of a call in JSON, or of what may be one; how much of it was taken."""
        taken = self._calls.object.feed(text)
        if self._machine.state is Reading.OBJECT:
            self._held += text[:taken]
            if self._calls.object.is_named:
                self._machine.fire(ReadingEvent.OBJECT_NAMED)
                self._calls.open_object()
        if self._machine.state is Reading.JSON:
            self._calls.object_grew()
        if self._calls.object.broken:
            self._wrong_guess()
        elif self._calls.object.over:
            self._machine.fire(ReadingEvent.OBJECT_CLOSE)
            self._complete(Reading.JSON)
            self._held = ""
        return taken

    # -- calls in thinking ----------------------------------------------------------------------

    def _begin_draft(self, literal: str) -> None:
        reader = Reader(
            control=self._control,
            tools=self._tools,
            new_call_id=self._new_call_id,
        )
        self._draft = Draft(reader)
        if literal in self._control:
            self._draft.control(literal, shown=True)
        else:
            self._draft.text(literal)

    def _reads_on_in_draft(self, literal: str, event: ReadingEvent | None) -> bool:
        """Whether a control token went into a draft, which may be over by now."""
        if self._draft is None or event in (ReadingEvent.THINK_OPEN, ReadingEvent.THINK_CLOSE):
            return False
        if not self._draft.control(literal, shown=literal in CALL_MARKERS):
            self._wrong_guess()
        return True

    def _draft_goes_on(self, text: str) -> None:
        if self._draft is not None and not self._draft.text(text):
            self._wrong_guess()

    def _only_thought(self) -> None:
        if self._draft is not None:
            self._think(self._draft.raw)
            self._draft = None

    def _end_draft(self) -> None:
        said = self._draft.ended() if self._draft is not None else None
        if said is None:
            self._wrong_guess()
        else:
            self._calls.adopt([one.delta for one in said])

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
                return self._stray(text, at)
            case Reading.OBJECT | Reading.JSON:
                return self._object(text)
            case Reading.DRAFT:
                self._draft_goes_on(text)
            case _:
                return self._between(text, at)
        return len(text)

    def _between(self, text: str, at: int) -> int:
        blank = len(text) - len(text.lstrip())
        if blank:
            self._held += text[:blank]
            return blank
        if text[0] == "{" and self._legal(ReadingEvent.OBJECT_OPEN):
            self._begin_object(at)
        else:
            self._wrong_guess()
        return 0

    def _stray(self, text: str, at: int) -> int:
        """Text where none belongs, but for arguments in JSON; how much of it was taken."""
        blank = len(text) - len(text.lstrip())
        if text[blank:].startswith("{") and self._edges.at_start:
            self._machine.fire(ReadingEvent.OBJECT_OPEN)
            self._calls.begin_arguments()
            return blank + 1
        if not text.isspace():
            self._machine.fire(ReadingEvent.OTHER)
        shown = self._edges.trimmed(text, string.whitespace)
        if shown:
            self._say(TextDelta(shown), at + len(text) - len(self._edges.held) - len(shown))
        return len(text)

    def _give_up_guess(self) -> None:
        """A control token that is no marker here is no blank either."""
        if self._machine.state in GUESSES:
            self._wrong_guess()

    def _wrong_guess(self) -> None:
        """What we held was something else."""
        before = self._machine.state
        after = self._machine.fire(ReadingEvent.OTHER)
        if after is Reading.VALUE:
            self._value(self._held)
        elif before in (Reading.CALL, Reading.OBJECT):
            self._wrappers.clear()
            self._show(self._held, self._held_at)
        elif before is Reading.JSON:
            self._calls.abandon_object()
            self._lines.restart()
        elif before is Reading.DRAFT:
            self._only_thought()

    def _show(self, text: str, at: int) -> None:
        self._lines.feed(text)
        shown = self._edges.without_start(text)
        if shown:
            self._say(TextDelta(shown), at + len(text) - len(shown))

    def _think(self, text: str) -> None:
        shown = self._edges.trimmed(text, "\n")
        if shown:
            self._say(ThinkingDelta(shown))

    def _value(self, text: str) -> None:
        self._calls.add_value(self._edges.framed(text))

    def _say(self, delta: Delta, at: int = -1) -> None:
        self._said.append(Said(delta, at))
