"""Times of engine steps, written by a server's process and read by the one that measures.

Both are on one machine, where `time.perf_counter` is one clock for all processes.
"""

import os
import struct
from pathlib import Path

import attrs

_RECORD = struct.Struct("dd")


@attrs.frozen
class Span:
    """One step, in seconds of the clock."""

    start: float
    end: float

    @property
    def seconds(self) -> float:
        """How long it took."""
        return self.end - self.start


class StepWriter:
    """Appends spans to a file, each in one piece and at once."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)

    def write(self, start: float, end: float) -> None:
        """One more step is over."""
        os.write(self._file, _RECORD.pack(start, end))


class StepReader:
    """Reads what has been written since the last look."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset = 0

    def new(self) -> list[Span]:
        """The steps since then, oldest first; none if there is no file yet."""
        if not self._path.exists():
            return []
        with self._path.open("rb") as file:
            file.seek(self._offset)
            data = file.read()
        whole = len(data) // _RECORD.size * _RECORD.size
        self._offset += whole
        return [Span(start, end) for start, end in _RECORD.iter_unpack(data[:whole])]


def own_seconds(steps: list[Span], since: float, until: float) -> float:
    """How much of the time between two moments the engine worked."""
    return sum(max(0.0, min(s.end, until) - max(s.start, since)) for s in steps)
