"""The way of events from the engine thread to the trio loop."""

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

import trio

T = TypeVar("T")


class Outbox(Generic[T]):
    """Has batches delivered on the loop, in their order; at most one is under way.

    A thread of its own wakes the loop. Whoever does that lets go of the interpreter's lock, and the
    loop takes it: the engine thread would not come to its next step before the loop is done. So it
    only leaves the batch here, and both go on while the engine works.
    """

    def __init__(self, token: trio.lowlevel.TrioToken, deliver: Callable[[T], None]) -> None:
        """`deliver` runs on the loop and must not raise."""
        self._token = token
        self._deliver = deliver
        self._batch: T | None = None
        # Plain locks, which one thread takes and another gives back: a step's end waits for this.
        self._left, self._free = threading.Lock(), threading.Lock()
        self._left.acquire()
        self._thread = threading.Thread(target=self._carry, name="flashrt-outbox", daemon=True)
        self._thread.start()

    def post(self, batch: T) -> None:
        """Leave a batch; waits only if the loop has not taken the one before."""
        self._free.acquire()
        self._batch = batch
        self._left.release()

    def flush(self) -> None:
        """Wait until everything is delivered."""
        with self._free:
            pass

    def close(self) -> None:
        """Deliver what is left, and end the thread."""
        self.flush()
        self._left.release()
        self._thread.join()

    def _carry(self) -> None:
        while self._carried_one():
            pass

    def _carried_one(self) -> bool:
        """Whether there was one. Nothing refers to it afterwards: who waits holds no answer."""
        self._left.acquire()
        batch, self._batch = self._batch, None
        if batch is None:
            return False
        try:
            self._token.run_sync_soon(self._take, batch)
        except trio.RunFinishedError:  # nobody is left to tell; whoever posts must not wait for it
            self._free.release()
        return True

    def _take(self, batch: T) -> None:
        try:
            self._deliver(batch)
        finally:
            self._free.release()
