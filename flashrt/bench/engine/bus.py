"""How fast the bus between the host's memory and the device's is, and states that go over it."""

from collections.abc import Mapping, Sequence
from typing import Any

import attrs
import torch

from flashrt.bench.engine.machine import Clock
from flashrt.bench.engine.rates import seconds
from flashrt.bench.engine.subject import Subject
from flashrt.engine.arena import PAGE_BYTES
from flashrt.engine.protocol import Capsule, HostCopy, RowBlock
from flashrt.errors import CannotServe

BYTES = {"cuda": 1 << 30, "cpu": 16 << 20}

Buffers = Mapping[str, Any]


@attrs.frozen
class Bus:
    """Bytes per second, of one large copy from and to pinned memory."""

    away: float
    """To the host."""
    back: float

    @classmethod
    def measured(cls, clock: Clock) -> "Bus":
        """The quickest of a few copies each way."""
        size, on_gpu = BYTES[clock.device.type], clock.device.type == "cuda"
        here = torch.zeros(size, dtype=torch.uint8, pin_memory=on_gpu)
        there = torch.zeros(size, dtype=torch.uint8, device=clock.device)
        away = seconds(clock, lambda: here.copy_(there, non_blocking=True))
        back = seconds(clock, lambda: there.copy_(here, non_blocking=True))
        return cls(size / away, size / back)

    def away_ms(self, size: int) -> float:
        """Milliseconds of so many bytes to the host."""
        return size / self.away * 1e3

    def back_ms(self, size: int) -> float:
        """Milliseconds of so many bytes to the device."""
        return size / self.back * 1e3


def take_room(subject: Subject, length: int) -> None:
    """Host memory for a state of `length` tokens, as a server takes it at start: twice its size,
    since a shorter one may have more rows in the window."""
    subject.engine.reset()
    subject.fill(subject.ids(length))
    size = 2 * subject.engine.snapshot_bytes() + 2 * PAGE_BYTES
    taken = subject.engine.take_host(-(-size // PAGE_BYTES) * PAGE_BYTES)
    if taken < size:
        raise CannotServe(
            f"the host pins only {taken >> 20} MiB of {size >> 20} MiB that a state of {length} "
            "tokens needs; ask for less with --context"
        )


def begun(subject: Subject, capsule: Capsule) -> list[HostCopy]:
    """Copies of all its parts in host memory, as a server begins them."""
    return [subject.engine.to_host(part) for part in parts(capsule)]


def parts(capsule: Capsule) -> list[Buffers]:
    """What is moved as a whole."""
    return [capsule.state, *(block.buffers for block in capsule.rows)]


def moved(capsule: Capsule, buffers: Sequence[Buffers]) -> Capsule:
    """The same state with its parts elsewhere."""
    state, *rows = buffers
    blocks = [
        RowBlock(block.start, block.packed, row, block.block_bytes)
        for block, row in zip(capsule.rows, rows, strict=True)
    ]
    return attrs.evolve(capsule, state=state, rows=tuple(blocks))
