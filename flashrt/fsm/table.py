"""A transition table as data, and the small machine that moves along it.

House rules: a table holds no condition (policy turns a condition into an event) and no action (the
caller acts on what `fire` returns). Whatever has no row is an error and moves nothing.
"""

from collections.abc import Iterable, Mapping
from enum import Enum
from types import MappingProxyType
from typing import Generic, TypeVar

import attrs

S = TypeVar("S", bound=Enum)
E = TypeVar("E", bound=Enum)


class IllegalTransition(AssertionError):
    """An event that has no row in the state a machine is in. Always a bug of ours."""


class MalformedTable(ValueError):
    """A table that cannot be right; raised when it is built, so at import."""


@attrs.frozen(eq=False)
class Table(Generic[S, E]):
    """Rows (state, event) → next state. Checked when built.

    Every state is reachable and, unless terminal, has a way out; terminal states have no row but
    those that stay (a late event that is explicitly absorbed).
    """

    name: str
    initial: S
    terminal: frozenset[S]
    rows: Mapping[tuple[S, E], S]

    def __attrs_post_init__(self) -> None:
        object.__setattr__(self, "rows", MappingProxyType(dict(self.rows)))
        for problem in self._problems():
            raise MalformedTable(f"{self.name}: {problem}")

    @property
    def states(self) -> tuple[S, ...]:
        """All states of the machine's enum."""
        return tuple(type(self.initial))

    @property
    def events(self) -> tuple[E, ...]:
        """All events of the machine's enum."""
        first = next(iter(self.rows))[1]
        return tuple(type(first))

    def legal(self, state: S) -> tuple[E, ...]:
        """The events that have a row in `state`."""
        return tuple(event for (source, event) in self.rows if source is state)

    def _problems(self) -> Iterable[str]:
        reached = {self.initial}
        for _ in self.states:
            reached |= {after for (before, _), after in self.rows.items() if before in reached}
        yield from (f"{state.name} is unreachable" for state in self.states if state not in reached)
        used = {event for _, event in self.rows}
        yield from (f"{event.name} moves nothing" for event in self.events if event not in used)
        for state in self.states:
            leaves = any(b is state and a is not state for (b, _), a in self.rows.items())
            if leaves and state in self.terminal:
                yield f"terminal {state.name} has a way out"
            if not leaves and state not in self.terminal:
                yield f"{state.name} has no way out"


class Machine(Generic[S, E]):
    """One thing moving along a table."""

    __slots__ = ("state", "table")

    def __init__(self, table: Table[S, E], state: S | None = None) -> None:
        self.table = table
        self.state: S = table.initial if state is None else state

    def fire(self, event: E) -> S:
        """Move along the row for `event` and return the new state.

        Raises IllegalTransition where there is no such row; the state stays.
        """
        after = self.table.rows.get((self.state, event))
        if after is None:
            legal = ", ".join(e.name for e in self.table.legal(self.state)) or "none"
            raise IllegalTransition(
                f"{self.table.name}: {event.name} in {self.state.name} (legal: {legal})"
            )
        self.state = after
        return after

    @property
    def over(self) -> bool:
        """Whether the machine is in a terminal state."""
        return self.state in self.table.terminal

    def __repr__(self) -> str:
        return f"<{self.table.name} {self.state.name}>"
