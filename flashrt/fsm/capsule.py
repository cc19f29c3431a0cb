"""Where a saved state is, and whether it must stay. Specification: specs/capsule.md."""

from enum import Enum, auto

from flashrt.fsm.table import Table


class CapsuleState(Enum):
    """What may be done with a capsule?"""

    WRITING = auto()
    DEVICE = auto()
    PINNED = auto()
    GONE = auto()


class CapsuleEvent(Enum):
    """What the store does to it."""

    STORE = auto()
    DECLINE = auto()
    USE = auto()
    PIN = auto()
    UNPIN = auto()
    EVICT = auto()
    DAMAGE = auto()


CAPSULE: Table[CapsuleState, CapsuleEvent] = Table(
    name="capsule",
    initial=CapsuleState.WRITING,
    terminal=frozenset({CapsuleState.GONE}),
    rows={
        (CapsuleState.WRITING, CapsuleEvent.STORE): CapsuleState.DEVICE,
        (CapsuleState.WRITING, CapsuleEvent.DECLINE): CapsuleState.GONE,
        #
        (CapsuleState.DEVICE, CapsuleEvent.USE): CapsuleState.DEVICE,
        (CapsuleState.DEVICE, CapsuleEvent.PIN): CapsuleState.PINNED,
        (CapsuleState.DEVICE, CapsuleEvent.UNPIN): CapsuleState.DEVICE,
        (CapsuleState.DEVICE, CapsuleEvent.EVICT): CapsuleState.GONE,
        (CapsuleState.DEVICE, CapsuleEvent.DAMAGE): CapsuleState.GONE,
        #
        (CapsuleState.PINNED, CapsuleEvent.USE): CapsuleState.PINNED,
        (CapsuleState.PINNED, CapsuleEvent.PIN): CapsuleState.PINNED,
        (CapsuleState.PINNED, CapsuleEvent.UNPIN): CapsuleState.DEVICE,
        (CapsuleState.PINNED, CapsuleEvent.DAMAGE): CapsuleState.GONE,
        #
        (CapsuleState.GONE, CapsuleEvent.USE): CapsuleState.GONE,
    },
)
