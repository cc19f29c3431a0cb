"""Which events of the three machines belong together. Specification: specs/moves.md.

A request, the engine's boundary and the request's sink are three machines. One *move* is what one
thing that happens does to all three, all or nothing. The machines say what may follow what; the
moves say what happens together: no end of a running request, say, without its INVALIDATE.
"""

from enum import Enum, auto
from typing import TypeVar

import attrs

from flashrt.fsm.boundary import Boundary, BoundaryEvent
from flashrt.fsm.lifecycle import Life, LifeEvent
from flashrt.fsm.sink import SinkEvent, SinkState

S = TypeVar("S", bound=Enum)


class Step(Enum):
    """What happens?"""

    ADMIT = auto()
    REJECT = auto()
    CANCEL = auto()
    FAIL = auto()
    ABANDON = auto()
    START = auto()
    REBUILD = auto()
    RESTORE = auto()
    READ = auto()
    CUT = auto()
    PREFILLED = auto()
    BURST = auto()
    SHOW = auto()
    COMMIT = auto()
    FINISH = auto()
    STALL = auto()
    RESUME = auto()
    LEAVE = auto()


class Hold(Enum):
    """What the request must have to do with the engine: it is free, or it is this request's."""

    TAKES = auto()
    KEEPS = auto()
    FREES = auto()


@attrs.frozen
class Move:
    """One step, where it may be taken, and what it fires.

    `request`, `boundary` and `sink` are the states in which it may be taken; empty means any.
    `hold` None: the request neither has the engine nor gets it, or it does not matter.
    """

    step: Step
    request: frozenset[Life]
    hold: Hold | None = None
    boundary: frozenset[Boundary] = frozenset()
    sink: frozenset[SinkState] = frozenset()
    fires_life: LifeEvent | None = None
    fires_boundary: tuple[BoundaryEvent, ...] = ()
    fires_sink: SinkEvent | None = None


def _in(*states: S) -> frozenset[S]:
    return frozenset(states)


# Between requests the boundary is one of these; while one runs it may be any.
_IDLE = _in(Boundary.NOTHING, Boundary.COMMITTED)

MOVES: tuple[Move, ...] = (
    Move(Step.ADMIT, _in(Life.ENQUEUED), fires_life=LifeEvent.ADMIT),
    Move(
        Step.REJECT,
        _in(Life.ENQUEUED, Life.QUEUED),
        fires_life=LifeEvent.REJECT,
        fires_sink=SinkEvent.END,
    ),
    Move(
        Step.CANCEL,
        _in(Life.ENQUEUED, Life.QUEUED),
        fires_life=LifeEvent.CANCEL,
        fires_sink=SinkEvent.END,
    ),
    Move(
        Step.FAIL,
        _in(Life.ENQUEUED, Life.QUEUED),
        fires_life=LifeEvent.FAIL,
        fires_sink=SinkEvent.END,
    ),
    Move(Step.START, _in(Life.QUEUED), Hold.TAKES, _IDLE, fires_life=LifeEvent.START),
    #
    Move(
        Step.REBUILD,
        _in(Life.PREFILL),
        Hold.KEEPS,
        _IDLE,
        fires_boundary=(BoundaryEvent.INVALIDATE,),
    ),
    Move(
        Step.RESTORE,
        _in(Life.PREFILL),
        Hold.KEEPS,
        _IDLE,
        fires_boundary=(BoundaryEvent.RESTORE,),
    ),
    Move(
        Step.READ,
        _in(Life.PREFILL),
        Hold.KEEPS,
        _IDLE,
        fires_boundary=(BoundaryEvent.PREFILL,),
    ),
    Move(
        Step.CUT,
        _in(Life.PREFILL),
        Hold.KEEPS,
        _in(Boundary.PREFILLING),
        fires_boundary=(BoundaryEvent.CUT,),
    ),
    Move(
        Step.PREFILLED,
        _in(Life.PREFILL),
        Hold.KEEPS,
        _in(Boundary.PREFILLING),
        fires_life=LifeEvent.PREFILLED,
        fires_boundary=(BoundaryEvent.COMMIT,),
    ),
    Move(
        Step.PREFILLED,
        _in(Life.PREFILL),
        Hold.KEEPS,
        _in(Boundary.COMMITTED),
        fires_life=LifeEvent.PREFILLED,
    ),
    #
    Move(
        Step.BURST,
        _in(Life.DECODE),
        Hold.KEEPS,
        _in(Boundary.COMMITTED),
        fires_boundary=(BoundaryEvent.BURST,),
    ),
    Move(
        Step.SHOW,
        _in(Life.DECODE),
        Hold.KEEPS,
        _in(Boundary.COMMITTED, Boundary.LEADING),
        fires_sink=SinkEvent.DELTA,
    ),
    Move(
        Step.COMMIT,
        _in(Life.DECODE),
        Hold.KEEPS,
        _in(Boundary.LEADING),
        fires_boundary=(BoundaryEvent.COMMIT,),
    ),
    Move(
        Step.FINISH,
        _in(Life.DECODE),
        Hold.FREES,
        _in(Boundary.COMMITTED),
        fires_life=LifeEvent.FINISH,
        fires_sink=SinkEvent.END,
    ),
    Move(
        Step.FINISH,
        _in(Life.DECODE),
        Hold.FREES,
        _in(Boundary.LEADING),
        fires_life=LifeEvent.FINISH,
        fires_boundary=(BoundaryEvent.INVALIDATE,),
        fires_sink=SinkEvent.END,
    ),
    #
    Move(
        Step.CANCEL,
        _in(Life.PREFILL, Life.DECODE),
        Hold.FREES,
        _in(Boundary.NOTHING, Boundary.PREFILLING, Boundary.COMMITTED),
        fires_life=LifeEvent.CANCEL,
        fires_boundary=(BoundaryEvent.INVALIDATE,),
        fires_sink=SinkEvent.END,
    ),
    Move(
        Step.FAIL,
        _in(Life.PREFILL, Life.DECODE),
        Hold.FREES,
        fires_life=LifeEvent.FAIL,
        fires_boundary=(BoundaryEvent.INVALIDATE,),
        fires_sink=SinkEvent.END,
    ),
    Move(
        Step.ABANDON,
        _in(Life.PREFILL, Life.DECODE),
        Hold.FREES,
        fires_life=LifeEvent.CANCEL,
        fires_boundary=(BoundaryEvent.INVALIDATE,),
        fires_sink=SinkEvent.END,
    ),
    #
    Move(Step.STALL, frozenset(), sink=_in(SinkState.OPEN), fires_sink=SinkEvent.STALL),
    Move(Step.RESUME, frozenset(), sink=_in(SinkState.STALLED), fires_sink=SinkEvent.RESUME),
    Move(Step.LEAVE, frozenset(), fires_sink=SinkEvent.LEAVE),
    #
    Move(
        Step.FINISH,
        _in(Life.PREFILL),
        Hold.FREES,
        _IDLE,
        fires_life=LifeEvent.FINISH,
        fires_sink=SinkEvent.END,
    ),
)
