"""Copies into plain host memory, for what is on its way to a file: beside the engine's work.

Nothing of a device's memory goes straight into memory that is not pinned without stopping whoever
asks. So a thread brings it there piece by piece, through two pinned slots that are taken once.
"""

import queue
import threading
from collections.abc import Iterator, Mapping
from copy import copy as copied
from types import MappingProxyType

import attrs
import torch
from torch import Tensor

SLOT_BYTES = 4 << 20
"""A power of two, as large as `pump.PIECE_BYTES`, and for its reason."""


@attrs.define(eq=False)
class Bounced:
    """A copy that is whole when the thread says so. Holds what it is made from until then."""

    buffers: Mapping[str, Tensor]
    sources: Mapping[str, Tensor]
    begun: torch.cuda.Event | None
    """What is copied has been computed then."""
    fault: Exception | None = None
    over: threading.Event = attrs.field(factory=threading.Event)

    @property
    def done(self) -> bool:
        """Whether it is over."""
        return self.over.is_set()

    def wait(self) -> Mapping[str, Tensor]:
        """Until it is. Raises what the copying has raised."""
        self.over.wait()
        if self.fault is not None:
            # A fault that is raised refers to whoever waits, and so to this copy.
            raise copied(self.fault)
        return self.buffers


@attrs.frozen(eq=False)
class _Slot:
    memory: Tensor
    event: torch.cuda.Event | None


class Bounce:
    """One thread and its slots; copies are done in the order in which they are begun."""

    def __init__(self, device: torch.device) -> None:
        """Takes the slots. The thread ends with the process, or when `close` is called."""
        on_gpu = device.type == "cuda"
        self._device = device
        self._stream = torch.cuda.Stream(device) if on_gpu else None
        self._slots = [
            _Slot(
                torch.empty(SLOT_BYTES, dtype=torch.uint8, pin_memory=on_gpu),
                torch.cuda.Event(blocking=True) if on_gpu else None,
            )
            for _ in range(2)
        ]
        self._jobs: queue.SimpleQueue[Bounced | None] = queue.SimpleQueue()
        threading.Thread(target=self._run, name="flashrt-bounce", daemon=True).start()

    def begin(self, buffers: Mapping[str, Tensor]) -> Bounced:
        """Raises what allocating raises. The buffers may be let go of at once."""
        begun = None
        if self._stream is not None:
            begun = torch.cuda.Event()
            begun.record(torch.cuda.current_stream(self._device))
        copy = {name: torch.empty(b.shape, dtype=b.dtype) for name, b in buffers.items()}
        job = Bounced(MappingProxyType(copy), dict(buffers), begun)
        self._jobs.put(job)
        return job

    def close(self) -> None:
        """End the thread behind what is under way."""
        self._jobs.put(None)

    # -- on the thread -----------------------------------------------------------------------------

    def _run(self) -> None:
        while (job := self._jobs.get()) is not None:
            try:
                self._copy(job)
            except Exception as fault:
                job.fault = fault.with_traceback(None)  # its frames hold what was copied
            job.sources = {}
            job.over.set()
            del job  # what it holds must not wait here for the next one

    @torch.inference_mode()
    def _copy(self, job: Bounced) -> None:
        if self._stream is None:
            self._through(_pieces(job))
            return
        with torch.cuda.stream(self._stream):
            if job.begun is not None:
                self._stream.wait_event(job.begun)
            self._through(_pieces(job))

    def _through(self, pieces: Iterator[tuple[Tensor, Tensor]]) -> None:
        """Into a slot while the other one is emptied."""
        full: tuple[_Slot, Tensor] | None = None
        for number, (source, target) in enumerate(pieces):
            slot = self._slots[number % 2]
            slot.memory[: len(source)].copy_(source, non_blocking=True)
            if slot.event is not None:
                slot.event.record()
            if full is not None:
                _empty(*full)
            full = slot, target
        if full is not None:
            _empty(*full)


def _pieces(job: Bounced) -> Iterator[tuple[Tensor, Tensor]]:
    """Source and target, as bytes."""
    for name, source in job.sources.items():
        flat, there = (t.reshape(-1).view(torch.uint8) for t in (source, job.buffers[name]))
        yield from zip(flat.split(SLOT_BYTES), there.split(SLOT_BYTES), strict=True)


def _empty(slot: _Slot, target: Tensor) -> None:
    if slot.event is not None:
        slot.event.synchronize()
    target.copy_(slot.memory[: len(target)])
