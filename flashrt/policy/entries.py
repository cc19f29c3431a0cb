"""What the store keeps: capsules with what is known of them, and what they are found by."""

import hashlib
import zlib
from collections.abc import Mapping
from enum import Enum, auto
from typing import Any

import attrs

from flashrt.engine.protocol import ID_BYTES, Capsule, HostCopy
from flashrt.fsm.capsule import CAPSULE, CapsuleEvent, CapsuleState
from flashrt.fsm.table import Machine
from flashrt.policy.lineage import Lineage
from flashrt.policy.spacing import Kind
from flashrt.policy.tiers import Part, Tier

PINNED = (CapsuleState.PINNED, CapsuleState.HELD)


class FileState(Enum):
    """Whether an entry has a file: none yet, on its way, whole; or none, and none is tried."""

    NONE = auto()
    BEGUN = auto()
    WHOLE = auto()
    GIVEN_UP = auto()


Copies = list[tuple[Part, HostCopy]]


@attrs.define(eq=False)
class Entry:
    """A capsule in the store. `key` names its namespace and processed ids.

    `session` made it, in its turn `turn`. `parent` is the deepest other entry that it begins with:
    from there its state would be computed again. `first_to_go`: an edit has cut it off.
    `leaving`: copies in host memory that are being made of it.
    """

    key: str
    capsule: Capsule
    namespace: str
    session: str
    kind: Kind
    turn: int
    lineage: Lineage
    parent: "Entry | None" = None
    first_to_go: bool = False
    used_at: float = 0.0
    machine: Machine[CapsuleState, CapsuleEvent] = attrs.field(factory=lambda: Machine(CAPSULE))
    tier: Tier | None = None
    part: Part | None = None
    leaving: Copies | None = None
    file: FileState = FileState.NONE

    @property
    def buffers(self) -> Mapping[str, Any]:
        """Those of its state."""
        return self.capsule.state

    @buffers.setter
    def buffers(self, buffers: Mapping[str, Any]) -> None:
        self.capsule = attrs.evolve(self.capsule, state=buffers)

    @property
    def block_bytes(self) -> int:
        """Bytes of its state."""
        return self.capsule.state_bytes

    @block_bytes.setter
    def block_bytes(self, size_bytes: int) -> None:
        self.capsule = attrs.evolve(self.capsule, state_bytes=size_bytes)

    @property
    def position(self) -> int:
        """Ids that its state has processed."""
        return self.capsule.position

    @property
    def pinned(self) -> bool:
        """Whether it must stay."""
        return self.machine.state in PINNED

    def begins_with(self, packed: bytes) -> bool:
        """Whether the first ids that its state has processed are `packed`."""
        return packed_of(self.capsule).startswith(packed)

    @property
    def cost(self) -> int:
        """Tokens to read again if it goes."""
        return self.position - (self.parent.position if self.parent is not None else 0)


@attrs.frozen
class Refusal:
    """Why a pin is refused, in words for the client."""

    reason: str


def key_of(namespace: str, capsule: Capsule) -> str:
    """Names a boundary: the namespace and the processed ids."""
    text = namespace.encode(errors="surrogatepass")
    head = b"%d:" % len(text) + text
    return hashlib.blake2b(head + packed_of(capsule), digest_size=16).hexdigest()


def packed_of(capsule: Capsule) -> bytes:
    """The processed ids of a capsule, packed."""
    packed = b"".join(block.packed for block in capsule.rows)
    return packed[: capsule.position * ID_BYTES]


def checksum(data: bytes | memoryview, start: int) -> int:
    """Of ids behind others whose checksum is `start`: it says where to look, not what is equal."""
    return zlib.crc32(data, start)
