"""Do the engine's live state and the journal agree? Specification: specs/boundary.md.

This table is invariant 2 of the mission: KV never leads the transcript.
"""

from enum import Enum, auto

from flashrt.fsm.table import Table


class Boundary(Enum):
    """What may be done with the live state?"""

    NOTHING = auto()
    PREFILLING = auto()
    COMMITTED = auto()
    LEADING = auto()


class BoundaryEvent(Enum):
    """What the turn loop does to it."""

    PREFILL = auto()
    CUT = auto()
    BURST = auto()
    COMMIT = auto()
    RESTORE = auto()
    INVALIDATE = auto()


BOUNDARY: Table[Boundary, BoundaryEvent] = Table(
    name="boundary",
    initial=Boundary.NOTHING,
    terminal=frozenset(),
    rows={
        (Boundary.NOTHING, BoundaryEvent.PREFILL): Boundary.PREFILLING,
        (Boundary.NOTHING, BoundaryEvent.RESTORE): Boundary.COMMITTED,
        (Boundary.NOTHING, BoundaryEvent.INVALIDATE): Boundary.NOTHING,
        #
        (Boundary.PREFILLING, BoundaryEvent.CUT): Boundary.PREFILLING,
        (Boundary.PREFILLING, BoundaryEvent.COMMIT): Boundary.COMMITTED,
        (Boundary.PREFILLING, BoundaryEvent.INVALIDATE): Boundary.NOTHING,
        #
        (Boundary.COMMITTED, BoundaryEvent.PREFILL): Boundary.PREFILLING,
        (Boundary.COMMITTED, BoundaryEvent.BURST): Boundary.LEADING,
        (Boundary.COMMITTED, BoundaryEvent.RESTORE): Boundary.COMMITTED,
        (Boundary.COMMITTED, BoundaryEvent.INVALIDATE): Boundary.NOTHING,
        #
        (Boundary.LEADING, BoundaryEvent.COMMIT): Boundary.COMMITTED,
        (Boundary.LEADING, BoundaryEvent.INVALIDATE): Boundary.NOTHING,
    },
)
