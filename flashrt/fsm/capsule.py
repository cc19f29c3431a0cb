"""Where a saved state is, and whether it must stay. Specification: specs/capsule.md."""

from enum import Enum, auto

from flashrt.fsm.table import Table


class CapsuleState(Enum):
    """What may be done with a capsule, and where are its buffers?"""

    WRITING = auto()
    DEVICE = auto()
    PINNED = auto()
    LEAVING = auto()
    HOST = auto()
    HELD = auto()
    DISK = auto()
    GONE = auto()


class CapsuleEvent(Enum):
    """What the store does to it."""

    STORE = auto()
    FIND = auto()
    DECLINE = auto()
    USE = auto()
    PIN = auto()
    UNPIN = auto()
    OFFLOAD = auto()
    COPIED = auto()
    PROMOTE = auto()
    KEEP = auto()
    RELEASE = auto()
    EVICT = auto()
    DAMAGE = auto()


_S, _E = CapsuleState, CapsuleEvent

CAPSULE: Table[CapsuleState, CapsuleEvent] = Table(
    name="capsule",
    initial=_S.WRITING,
    terminal=frozenset({_S.GONE}),
    rows={
        (_S.WRITING, _E.STORE): _S.DEVICE,
        (_S.WRITING, _E.KEEP): _S.HOST,
        (_S.WRITING, _E.FIND): _S.DISK,
        (_S.WRITING, _E.DECLINE): _S.GONE,
        #
        (_S.DEVICE, _E.USE): _S.DEVICE,
        (_S.DEVICE, _E.PIN): _S.PINNED,
        (_S.DEVICE, _E.UNPIN): _S.DEVICE,
        (_S.DEVICE, _E.OFFLOAD): _S.LEAVING,
        (_S.DEVICE, _E.RELEASE): _S.DISK,
        (_S.DEVICE, _E.EVICT): _S.GONE,
        (_S.DEVICE, _E.DAMAGE): _S.GONE,
        #
        (_S.PINNED, _E.USE): _S.PINNED,
        (_S.PINNED, _E.PIN): _S.PINNED,
        (_S.PINNED, _E.UNPIN): _S.DEVICE,
        (_S.PINNED, _E.DAMAGE): _S.GONE,
        #
        (_S.LEAVING, _E.USE): _S.DEVICE,
        (_S.LEAVING, _E.UNPIN): _S.LEAVING,
        (_S.LEAVING, _E.COPIED): _S.HOST,
        (_S.LEAVING, _E.RELEASE): _S.DISK,
        (_S.LEAVING, _E.EVICT): _S.GONE,
        (_S.LEAVING, _E.DAMAGE): _S.GONE,
        #
        (_S.HOST, _E.USE): _S.HOST,
        (_S.HOST, _E.PIN): _S.HELD,
        (_S.HOST, _E.UNPIN): _S.HOST,
        (_S.HOST, _E.PROMOTE): _S.DEVICE,
        (_S.HOST, _E.RELEASE): _S.DISK,
        (_S.HOST, _E.EVICT): _S.GONE,
        (_S.HOST, _E.DAMAGE): _S.GONE,
        #
        (_S.HELD, _E.USE): _S.HELD,
        (_S.HELD, _E.PIN): _S.HELD,
        (_S.HELD, _E.UNPIN): _S.HOST,
        (_S.HELD, _E.PROMOTE): _S.PINNED,
        (_S.HELD, _E.DAMAGE): _S.GONE,
        #
        (_S.DISK, _E.USE): _S.DISK,
        (_S.DISK, _E.UNPIN): _S.DISK,
        (_S.DISK, _E.PROMOTE): _S.DEVICE,
        (_S.DISK, _E.KEEP): _S.HOST,
        (_S.DISK, _E.EVICT): _S.GONE,
        (_S.DISK, _E.DAMAGE): _S.GONE,
        #
        (_S.GONE, _E.USE): _S.GONE,
    },
)
