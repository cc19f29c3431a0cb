"""Copies to the host by a thread, a few pieces at a time, beside the engine's work.

A device has one engine for what goes to the host, and serves it in the order in which it is
submitted: a whole state ahead of it, and the few bytes that a step of decode sends (an id, rows of
logits) wait tens of milliseconds. So the thread submits a piece when an older one has arrived.
"""

import queue
import threading
import weakref
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from copy import copy as copied
from typing import Any, Protocol

import attrs
import torch
from torch import Tensor

from flashrt.engine.paged import Paged

PIECE_BYTES = 2 << 20
"""What is submitted at once, behind one event: 40 us at 54 GB/s. The thread has the time of
`IN_FLIGHT` - 1 of them to wake up and submit the next one before the device runs dry."""

IN_FLIGHT = 2
"""Pieces that are submitted and have not arrived: what a step's own transfer waits for at most."""

Transfer = tuple[Tensor, Tensor]
"""From and to, as bytes."""


class Event(Protocol):
    """A point of a stream."""

    def synchronize(self) -> None:
        """Wait until it has come by, without Python's lock."""


class Stream(Protocol):
    """Where the thread submits."""

    def begun(self) -> Any:
        """On the engine's thread: what it has computed so far."""

    def behind(self, begun: Any) -> None:
        """What is submitted from now on comes behind that."""

    def entered(self) -> AbstractContextManager[Any]:
        """Whatever the thread copies in here goes to this stream."""

    def mark(self) -> Event:
        """Comes by behind all that is submitted so far."""


class SideStream:
    """A stream of a CUDA device beside the engine's."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._stream = torch.cuda.Stream(device)

    def begun(self) -> torch.cuda.Event:
        """Of the engine's stream."""
        event = torch.cuda.Event()
        event.record(torch.cuda.current_stream(self._device))
        return event

    def behind(self, begun: torch.cuda.Event) -> None:
        """The stream waits, and nobody else."""
        self._stream.wait_event(begun)

    def entered(self) -> AbstractContextManager[Any]:
        """It is the thread's current stream."""
        return torch.cuda.stream(self._stream)

    def mark(self) -> Event:
        """Who waits for it sleeps: a thread that spins would take a core from the engine."""
        event = torch.cuda.Event(blocking=True)
        event.record(self._stream)
        return event


@attrs.frozen
class _Work:
    sources: Mapping[str, Tensor]
    targets: Mapping[str, Paged]
    begun: Any


@attrs.define(eq=False)
class _Job:
    """A copy as the thread knows it."""

    _work: list[_Work]
    """One, until the thread begins with it or nobody wants it: it is whose pop succeeds."""
    given_up: bool = False
    in_hand: bool = False
    """Given up after the thread had begun with it."""
    fault: Exception | None = None
    over: threading.Event = attrs.field(factory=threading.Event)

    def take(self) -> _Work | None:
        """None: somebody else has it."""
        try:
            return self._work.pop()
        except IndexError:
            return None

    def give_up(self) -> None:
        """Whatever is not submitted yet is not copied any more."""
        self.given_up = True
        self.in_hand = self.take() is None

    def failed(self, fault: Exception) -> None:
        """The first fault is the one that is told."""
        # Its frames would hold what was copied.
        self.fault = self.fault or fault.with_traceback(None)


@attrs.frozen(eq=False)
class Pumped:
    """A copy that is whole when the thread says so. It is given up when nobody refers to it."""

    buffers: Mapping[str, Paged]
    _job: _Job

    @property
    def done(self) -> bool:
        """Whether it is over."""
        return self._job.over.is_set()

    def wait(self) -> Mapping[str, Paged]:
        """Until it is. Raises what the copying has raised."""
        self._job.over.wait()
        if self._job.fault is not None:
            # A fault that is raised refers to whoever waits, and so to this copy and its room.
            raise copied(self._job.fault)
        return self.buffers


@attrs.frozen(eq=False)
class _Flight:
    """A piece that is submitted, which is held until it has arrived; without one, a job's end."""

    job: _Job
    piece: Sequence[Transfer] = ()
    event: Event | None = None


class Pump:
    """One thread and its stream; copies are done in the order in which they are begun."""

    def __init__(self, stream: Stream) -> None:
        """The thread ends with the process, or when `close` is called."""
        self._stream = stream
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._begun: deque[_Job] = deque()
        self._flights: deque[_Flight] = deque()
        threading.Thread(target=self._run, name="flashrt-pump", daemon=True).start()

    def begin(self, sources: Mapping[str, Tensor], targets: Mapping[str, Paged]) -> Pumped:
        """The sources may be let go of at once, and may not change until the copy is done."""
        job = _Job([_Work(dict(sources), targets, self._stream.begun())])
        copy = Pumped(targets, job)
        weakref.finalize(copy, job.give_up).atexit = False
        while self._begun and self._begun[0].over.is_set():
            self._begun.popleft()
        self._begun.append(job)
        self._jobs.put(job)
        return copy

    def let_go(self) -> bool:
        """Wait for the pieces under way of copies that were given up, which hold room until then;
        whether there were any. On the thread that begins."""
        held = [job for job in self._begun if job.in_hand and not job.over.is_set()]
        for job in held:
            job.over.wait()
        return bool(held)

    def close(self) -> None:
        """End the thread behind what is under way."""
        self._jobs.put(None)

    # -- on the thread -----------------------------------------------------------------------------

    @torch.inference_mode()
    def _run(self) -> None:
        with self._stream.entered():
            while (job := self._next()) is not None:
                self._submit(job)
                self._flights.append(_Flight(job))
                self._end_jobs()
            while self._flights:
                self._land()

    def _next(self) -> _Job | None:
        """The next job; until there is one, what is under way arrives."""
        while self._flights:
            try:
                return self._jobs.get_nowait()
            except queue.Empty:
                self._land()
        return self._jobs.get()

    def _submit(self, job: _Job) -> None:
        work = job.take()
        if work is None:
            return
        try:
            self._stream.behind(work.begun)
            for piece in _pieces(work):
                while sum(flight.event is not None for flight in self._flights) >= IN_FLIGHT:
                    self._land()
                if job.given_up or job.fault is not None:
                    return
                self._send(job, piece)
        except Exception as fault:
            job.failed(fault)

    def _send(self, job: _Job, piece: Sequence[Transfer]) -> None:
        try:
            for there, here in piece:
                here.copy_(there, non_blocking=True)
        finally:  # a part of it may be under way
            self._flights.append(_Flight(job, piece, self._stream.mark()))

    def _land(self) -> None:
        """Wait for the oldest piece."""
        flight = self._flights.popleft()
        assert flight.event is not None, "ends go with the piece before them"
        try:
            flight.event.synchronize()
        except Exception as fault:
            flight.job.failed(fault)
        del flight  # before anybody hears that it is over
        self._end_jobs()

    def _end_jobs(self) -> None:
        while self._flights and self._flights[0].event is None:
            self._flights.popleft().job.over.set()


def _pieces(work: _Work) -> Iterator[Sequence[Transfer]]:
    """Transfers of `PIECE_BYTES` together, or as many as there are."""
    piece: list[Transfer] = []
    size = 0
    for name, source in work.sources.items():
        for transfer in work.targets[name].transfers(source, PIECE_BYTES):
            if size + len(transfer[0]) > PIECE_BYTES:
                yield piece
                piece, size = [], 0
            piece.append(transfer)
            size += len(transfer[0])
    if piece:
        yield piece
