"""A stream as the pump sees it, on which pieces arrive one by one, when a test lets them."""

import contextlib
import queue
import threading
from collections.abc import Iterator

import attrs


@attrs.define(eq=False)
class Mark:
    """The point behind one piece."""

    stream: "HeldStream"

    def synchronize(self) -> None:
        """Says that it is waited for, and waits until it may come by."""
        self.stream.waited.put(True)
        if not self.stream.opened:
            self.stream.gate.acquire()
        self.stream.under_way -= 1
        if self.stream.fault is not None:
            raise self.stream.fault


@attrs.define(eq=False)
class HeldStream:
    """The thread may not even begin before `start` is set."""

    start: threading.Event = attrs.field(factory=threading.Event)
    waited: queue.SimpleQueue = attrs.field(factory=queue.SimpleQueue)
    """True each time that the thread begins to wait, None when it ends."""
    gate: threading.Semaphore = attrs.field(factory=lambda: threading.Semaphore(0))
    opened: bool = False
    under_way: int = 0
    sent: int = 0
    begins: int = 0
    kept_behind: list[int] = attrs.field(factory=list)
    fault: Exception | None = None

    def begun(self) -> int:
        """The number of the copy."""
        self.begins += 1
        return self.begins

    def behind(self, begun: int) -> None:
        """Noted."""
        self.kept_behind.append(begun)

    @contextlib.contextmanager
    def entered(self) -> Iterator[None]:
        """Between the thread's beginning and its end."""
        self.start.wait()
        yield
        self.waited.put(None)

    def mark(self) -> Mark:
        """One more piece is under way."""
        self.under_way += 1
        self.sent += 1
        return Mark(self)

    def open(self) -> None:
        """Everything arrives from now on."""
        self.opened = True
        self.start.set()
        self.gate.release()  # the thread may be waiting
