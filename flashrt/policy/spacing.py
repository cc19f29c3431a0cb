"""Which states of one conversation stay: dense near its end, at doubling distances before.

With N turns behind it, a conversation of n turns that is edited at turn k finds a state at turn
k - 1 or later if k is among the newest, and else at half of k or later.
"""

from collections.abc import Iterable, Iterator
from enum import Enum
from typing import Protocol, TypeVar

NEWEST_TURNS = 8
"""Turns that keep both of their boundaries."""

EVERY_CUTS = 8
"""Of the cuts of a long prefill each so-manieth is kept."""


class Kind(Enum):
    """Which boundary a state was saved at."""

    SYSTEM = "system"
    """The end of the system turn, tools included."""
    CUT = "cut"
    """A cut of a prefill."""
    PROMPT = "prompt"
    """Before a generation prompt."""
    COMMITTED = "committed"
    """The end of an answer."""


class Spaced(Protocol):
    """A saved state, as far as spacing is concerned. `turn` counts from 1."""

    @property
    def kind(self) -> Kind: ...
    @property
    def turn(self) -> int: ...
    @property
    def pinned(self) -> bool: ...


S = TypeVar("S", bound=Spaced)


def keeps(kind: Kind, turn: int, newest_turn: int) -> bool:
    """Whether a state of `turn` stays in a conversation whose newest turn is `newest_turn`."""
    if kind is Kind.SYSTEM or newest_turn - turn < NEWEST_TURNS:
        return True
    return kind is not Kind.PROMPT and _is_power_of_two(turn)


def thin(entries: Iterable[S], newest_turn: int) -> Iterator[S]:
    """Of one conversation's states, those that need not stay."""
    for entry in entries:
        if not entry.pinned and not keeps(entry.kind, entry.turn, newest_turn):
            yield entry


def saves_cut(index: int) -> bool:
    """Whether the state at the cut of this index, counted from 0, is kept."""
    return (index + 1) % EVERY_CUTS == 0


def _is_power_of_two(number: int) -> bool:
    return number & (number - 1) == 0
