"""Writes an answer's tool calls as deltas, one call after the other."""

from collections.abc import Callable, Collection, Sequence

import attrs

from flashrt.chat.arguments import ArgumentsText, ToolSchemas
from flashrt.chat.deltas import Delta, ToolCallArguments, ToolCallEnd, ToolCallStart
from flashrt.chat.json_call import JsonCall
from flashrt.chat.request import Json


class Calls:
    """The calls of one answer. `complete` counts those that are whole."""

    def __init__(
        self, tools: Sequence[Json], new_call_id: Callable[[], str], say: Callable[[Delta], None]
    ) -> None:
        self.complete = 0
        self.object = JsonCall(None)
        self._schemas = ToolSchemas.of(tools)
        self._new_call_id = new_call_id
        self._say = say
        self._index = 0
        self._tool = ""
        self._arguments = ArgumentsText()

    @property
    def offered(self) -> Collection[str]:
        """Names of the tools that the request offers."""
        return self._schemas.names

    # -- in tags --------------------------------------------------------------------------------

    def open_function(self, name: str) -> None:
        """A call of `name` begins."""
        self._tool = name
        self._arguments = ArgumentsText()
        self._start(name)
        self._grow(self._arguments.open())

    def open_parameter(self, name: str, *, value_open: bool) -> None:
        """A parameter begins, and the value before it ends if it is open."""
        ended = self._arguments.end_value() if value_open else ""
        self._grow(ended + self._arguments.name(name, self._schemas.kinds(self._tool, name)))

    def add_value(self, text: str) -> None:
        """The parameter's value goes on."""
        self._grow(self._arguments.value(text))

    def complete_function(self, *, value_open: bool) -> None:
        """The call is whole."""
        ended = self._arguments.end_value() if value_open else ""
        self._grow(ended + self._arguments.close())
        self._end()

    # -- in JSON --------------------------------------------------------------------------------

    def begin_object(self, *, any_name: bool) -> None:
        """What may be a call in JSON begins; of a tool on offer, unless `any_name` makes one."""
        self.object = JsonCall(None if any_name else self.offered)

    def begin_arguments(self) -> None:
        """The arguments of the function that has just opened are one object, behind its brace."""
        self.object = JsonCall.of_function(self._tool)

    def open_object(self) -> None:
        """It is a call."""
        self._start(self.object.name or "")

    def object_grew(self) -> None:
        """Pass on what is new of its arguments."""
        self._grow(self.object.written())

    def complete_object(self) -> None:
        """The call is whole."""
        self._grow(self.object.close())
        self._end()

    def abandon_object(self) -> None:
        """The call stays open for good."""
        self._index += 1

    # -------------------------------------------------------------------------------------------

    def adopt(self, deltas: Sequence[Delta]) -> None:
        """Take over whole calls that were read apart."""
        first = self._index
        for delta in deltas:
            if isinstance(delta, ToolCallStart | ToolCallArguments | ToolCallEnd):
                self._say(attrs.evolve(delta, index=first + delta.index))
            if isinstance(delta, ToolCallEnd):
                self._index += 1
                self.complete += 1

    def _start(self, name: str) -> None:
        self._say(ToolCallStart(self._index, self._new_call_id(), name))

    def _grow(self, text: str) -> None:
        if text:
            self._say(ToolCallArguments(self._index, text))

    def _end(self) -> None:
        self._say(ToolCallEnd(self._index))
        self._index += 1
        self.complete += 1
