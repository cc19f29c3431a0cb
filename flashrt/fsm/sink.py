"""Where the answer of one request goes. Specification: specs/sink.md."""

from enum import Enum, auto

from flashrt.fsm.table import Table


class SinkState(Enum):
    """Who is at the other end?"""

    OPEN = auto()
    STALLED = auto()
    GONE = auto()
    ENDED = auto()


class SinkEvent(Enum):
    """What the engine's events and the client do to it."""

    DELTA = auto()
    STALL = auto()
    RESUME = auto()
    LEAVE = auto()
    END = auto()


SINK: Table[SinkState, SinkEvent] = Table(
    name="sink",
    initial=SinkState.OPEN,
    terminal=frozenset({SinkState.ENDED}),
    rows={
        (SinkState.OPEN, SinkEvent.DELTA): SinkState.OPEN,
        (SinkState.OPEN, SinkEvent.STALL): SinkState.STALLED,
        (SinkState.OPEN, SinkEvent.LEAVE): SinkState.GONE,
        (SinkState.OPEN, SinkEvent.END): SinkState.ENDED,
        #
        (SinkState.STALLED, SinkEvent.DELTA): SinkState.STALLED,
        (SinkState.STALLED, SinkEvent.RESUME): SinkState.OPEN,
        (SinkState.STALLED, SinkEvent.LEAVE): SinkState.GONE,
        (SinkState.STALLED, SinkEvent.END): SinkState.ENDED,
        #
        (SinkState.GONE, SinkEvent.DELTA): SinkState.GONE,
        (SinkState.GONE, SinkEvent.LEAVE): SinkState.GONE,
        (SinkState.GONE, SinkEvent.END): SinkState.ENDED,
        #
        (SinkState.ENDED, SinkEvent.LEAVE): SinkState.ENDED,
    },
)
