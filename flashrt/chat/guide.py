"""Keeps an answer in its shape: the grammar, id by id, where thinking is over."""

from collections.abc import Sequence
from enum import Enum, auto

import attrs
import numpy as np
from numpy.typing import NDArray

from flashrt.chat.grammar import Matcher

Row = None | int | NDArray[np.bool_]


class Phase(Enum):
    """Where is the answer?"""

    THINKING = auto()
    LEAD = auto()
    SHAPED = auto()


@attrs.frozen
class _Place:
    """A phase; in LEAD, how many of the lead's ids have come."""

    phase: Phase
    lead: int = 0


class Guide:
    """A constraint for `Engine.decode` (engine.protocol.Constraint). Lives on the engine thread.

    After the id that closes the think block, the ids of `lead` are forced (the blank line that the
    template writes there), so the shape begins where visible text does.
    """

    def __init__(
        self,
        matcher: Matcher,
        *,
        opens_thinking: bool,
        think_close: int | None,
        lead: Sequence[int],
        thoughts: Row = None,
    ) -> None:
        """`thoughts`: what a think block may hold, which is not bound by the shape."""
        self._thoughts = thoughts
        self._matcher = matcher
        self._think_close = think_close
        self._lead = tuple(lead)
        self._place = _Place(Phase.THINKING if opens_thinking else Phase.SHAPED)

    def __call__(self, accepted: Sequence[int], draft: Sequence[int]) -> Sequence[Row]:
        """One row of limits per draft id and one more; moves by `accepted` only."""
        for token in accepted:
            self._place = self._after(self._place, token)
        rows: list[Row] = []
        place, taken = self._place, 0
        for token in draft:
            rows.append(self._row(place))
            if not self._fits(rows[-1], token):
                break
            taken += place.phase is Phase.SHAPED
            place = self._after(place, token)
        else:
            rows.append(self._row(place))
        self._matcher.undo(taken)
        # Behind a draft id that does not fit no row can be accepted, so any limit will do.
        return [*rows, *[None] * (len(draft) + 1 - len(rows))]

    def _row(self, place: _Place) -> Row:
        match place.phase:
            case Phase.THINKING:
                return self._thoughts
            case Phase.LEAD:
                return self._lead[place.lead]
            case Phase.SHAPED:
                return self._matcher.allowed()

    def _fits(self, row: Row, token: int) -> bool:
        if row is None:
            return True
        return token == row if isinstance(row, int) else bool(row[token])

    def _after(self, place: _Place, token: int) -> _Place:
        """The place after one id that fits; in SHAPED the matcher moves too."""
        match place.phase:
            case Phase.SHAPED:
                self._matcher.take([token])
                return place
            case Phase.THINKING if token != self._think_close:
                return place
            case Phase.THINKING:
                return _Place(Phase.LEAD) if self._lead else _Place(Phase.SHAPED)
        done = place.lead + 1
        return _Place(Phase.LEAD, done) if done < len(self._lead) else _Place(Phase.SHAPED)


class EndsAfterCall:
    """A constraint too: free up to the end of the first call, and then only a stop may follow.

    A call inside the think block is a thought.
    """

    def __init__(
        self, *, call_close: int, think_close: int | None, opens_thinking: bool, stops: Row
    ) -> None:
        self._call_close = call_close
        self._think_close = think_close
        self._place = (opens_thinking, False)
        self._stops = stops

    def __call__(self, accepted: Sequence[int], draft: Sequence[int]) -> Sequence[Row]:
        """One row of limits per draft id and one more; moves by `accepted` only."""
        for token in accepted:
            self._place = self._after(self._place, token)
        places = [self._place]
        for token in draft:
            places.append(self._after(places[-1], token))
        return [self._stops if called else None for _, called in places]

    def _after(self, place: tuple[bool, bool], token: int) -> tuple[bool, bool]:
        """(inside the think block, a call is whole) after one more id."""
        thinks, called = place
        if thinks:
            return token != self._think_close, called
        return False, called or token == self._call_close
