"""The life of one request. Specification: specs/lifecycle.md."""

from enum import Enum, auto

from flashrt.fsm.table import Table


class Life(Enum):
    """Where is the request?"""

    ENQUEUED = auto()
    QUEUED = auto()
    PREFILL = auto()
    DECODE = auto()
    DONE = auto()
    CANCELLED = auto()
    ERROR = auto()
    REJECTED = auto()


class LifeEvent(Enum):
    """What happens to it."""

    ADMIT = auto()
    REJECT = auto()
    START = auto()
    PREFILLED = auto()
    FINISH = auto()
    CANCEL = auto()
    FAIL = auto()


LIFECYCLE: Table[Life, LifeEvent] = Table(
    name="lifecycle",
    initial=Life.ENQUEUED,
    terminal=frozenset({Life.DONE, Life.CANCELLED, Life.ERROR, Life.REJECTED}),
    rows={
        (Life.ENQUEUED, LifeEvent.ADMIT): Life.QUEUED,
        (Life.ENQUEUED, LifeEvent.REJECT): Life.REJECTED,
        (Life.ENQUEUED, LifeEvent.CANCEL): Life.CANCELLED,
        (Life.ENQUEUED, LifeEvent.FAIL): Life.ERROR,
        #
        (Life.QUEUED, LifeEvent.START): Life.PREFILL,
        (Life.QUEUED, LifeEvent.REJECT): Life.REJECTED,
        (Life.QUEUED, LifeEvent.CANCEL): Life.CANCELLED,
        (Life.QUEUED, LifeEvent.FAIL): Life.ERROR,
        #
        (Life.PREFILL, LifeEvent.PREFILLED): Life.DECODE,
        (Life.PREFILL, LifeEvent.CANCEL): Life.CANCELLED,
        (Life.PREFILL, LifeEvent.FAIL): Life.ERROR,
        #
        (Life.DECODE, LifeEvent.FINISH): Life.DONE,
        (Life.DECODE, LifeEvent.CANCEL): Life.CANCELLED,
        (Life.DECODE, LifeEvent.FAIL): Life.ERROR,
        #
        (Life.PREFILL, LifeEvent.FINISH): Life.DONE,
    },
)
