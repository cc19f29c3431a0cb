"""The disk tier: one writer thread between the engine thread and the directory of capsules.

What is handed over is written in its order, deletions among it, and nobody waits for that. What is
under way is bounded by its bytes: they are in memory until they are written.
"""

import logging
import queue
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping

import attrs

from flashrt.disk import Buffers, CapsuleDirectory, DiskFault, Filed, HostBuffer
from flashrt.engine.protocol import RawBuffer
from flashrt.policy.shelf import Delivered, Parcel, RawBuffers, Unpacked

log = logging.getLogger("flashrt")

UNDER_WAY_BYTES_MAX = 1 << 30
"""Of parcels that are not written yet; a single one may be larger."""

MANIFEST_BYTES, MANIFEST_ID_BYTES = 6000, 6
"""Of a capsule's files beside its buffers, at most: by itself, and for each id."""

WAIT_S = 1.0
"""The engine waits so long for a file whose capsule has to leave memory, and then lets it go."""


class DiskShelf:
    """A directory with a writer thread. All methods are for one other thread, the engine's."""

    def __init__(
        self,
        directory: CapsuleDirectory,
        *,
        under_way_bytes_max: int = UNDER_WAY_BYTES_MAX,
        wait_s: float = WAIT_S,
    ) -> None:
        """Starts the thread; `close` ends it."""
        self.directory = directory
        self._under_way_bytes_max = under_way_bytes_max
        self._wait_s = wait_s
        self._jobs: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._done: queue.SimpleQueue[Delivered] = queue.SimpleQueue()
        self._changed = threading.Condition()
        self._under_way: dict[int, int] = {}
        self._jobs_left = 0
        self._thread = threading.Thread(target=self._write_all, name="flashrt-disk", daemon=True)
        self._thread.start()

    # -- on the engine thread ----------------------------------------

    @property
    def budget_bytes(self) -> int | None:
        """What the files may hold, with a little left for notes and for what others write: where
        the directory is full, it lets go of what was used least, whatever it is worth."""
        budget = self.directory.budget_bytes
        return None if budget is None else budget * 9 // 10

    def manifest_bytes(self, position: int, /) -> int:
        """A manifest with its ids in Base64, and the headers of its parts."""
        return MANIFEST_BYTES + MANIFEST_ID_BYTES * position

    @property
    def busy(self) -> bool:
        """Whether anything is under way."""
        return self._jobs_left > 0 or not self._done.empty()

    def takes(self, size_bytes: int, /) -> bool:
        """Whether so much may be handed over now."""
        with self._changed:
            under_way = sum(self._under_way.values())
        return not under_way or under_way + size_bytes <= self._under_way_bytes_max

    def put(self, parcel: Parcel, /) -> None:
        """Have it filed."""
        with self._changed:
            self._under_way[parcel.number] = parcel.size_bytes
        self._begin(lambda: self._write(parcel))

    def delivered(self) -> Iterator[Delivered]:
        """What was done since the last call."""
        while not self._done.empty():
            yield self._done.get()

    def wait(self, number: int, /) -> None:
        """For the parcel of that number, at most `WAIT_S`."""
        with self._changed:
            self._changed.wait_for(lambda: number not in self._under_way, self._wait_s)

    def read(self, key: str, known: Collection[str], /) -> Unpacked:
        """A capsule, verified. Raises DiskFault, which is in the log then."""
        try:
            _, state, rows = self.directory.read(key, known)
        except DiskFault as fault:
            log.warning("capsule %s on disk is not used: %s", key, fault)
            raise
        return Unpacked(_raw(state), tuple(None if b is None else _raw(b) for _, b in rows))

    def delete(self, key: str, /) -> None:
        """Have its file deleted, behind what was handed over before."""
        self._begin(lambda: self._delete(key))

    def keep_note(self, name: str, data: bytes) -> None:
        """Have bytes kept under a name."""
        self._begin(lambda: self._note(name, data))

    def read_note(self, name: str) -> bytes | None:
        """The bytes of that name, if there are any. Raises DiskFault."""
        return self.directory.read_note(name)

    def filed(self) -> Iterator[Filed]:
        """The capsules that are whole, newest first; what is not is let go of, behind this.

        Raises DiskFault.
        """
        found = self.directory.filed()
        self._begin(self._prune)
        return found

    def report(self) -> Mapping[str, object]:
        """What the directory holds."""
        return self.directory.report()

    def wait_for_one(self, seconds: float) -> None:
        """Until something was delivered, or nothing is under way."""
        with self._changed:
            self._changed.wait_for(lambda: not self._done.empty() or not self._jobs_left, seconds)

    def flush(self, seconds: float) -> bool:
        """Wait until nothing is under way; whether that came about in time."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._jobs_left, max(0.0, seconds))

    def close(self) -> None:
        """End the thread behind what is under way, without waiting for it."""
        self._jobs.put(None)

    # -- on the writer thread ----------------------------------------

    def _write_all(self) -> None:
        while (job := self._jobs.get()) is not None:
            try:
                job()
            except Exception as fault:  # a fault of the disk never ends the thread (G8)
                log.warning("disk: %s", fault)
            del job  # it holds the bytes that were written
            with self._changed:
                self._jobs_left -= 1
                self._changed.notify_all()

    def _write(self, parcel: Parcel) -> None:
        filed = attrs.evolve(parcel.filed, saved_at=time.time())
        rows = [
            (packed, row if isinstance(row, str) else _buffers(row)) for packed, row in parcel.rows
        ]
        try:
            written = self.directory.write(filed, _buffers(parcel.state), rows)
        except Exception as fault:
            log.warning("capsule %s is not on disk: %s", filed.key, fault)
            self._deliver(Delivered(parcel.number, fault=str(fault) or type(fault).__name__))
            return
        gone = tuple(gone.key for gone in written.gone if gone.key is not None)
        names = tuple(row.name for row in written.filed.rows)
        self._deliver(Delivered(parcel.number, names, gone=gone))

    def _delete(self, key: str) -> None:
        self.directory.delete(key)

    def _prune(self) -> None:
        for gone in self.directory.prune():
            log.info("disk: %s has gone: %s", gone.file, gone.why)

    def _note(self, name: str, data: bytes) -> None:
        self.directory.write_note(name, data)

    # -- between them ------------------------------------------------

    def _begin(self, job: Callable[[], None]) -> None:
        with self._changed:
            self._jobs_left += 1
        self._jobs.put(job)

    def _deliver(self, delivered: Delivered) -> None:
        self._done.put(delivered)
        with self._changed:
            self._under_way.pop(delivered.number, None)
            self._changed.notify_all()


def _buffers(raw: RawBuffers) -> Buffers:
    return {name: HostBuffer(b.dtype, b.shape, b.data) for name, b in raw.items()}


def _raw(buffers: Buffers) -> RawBuffers:
    return {name: RawBuffer(b.dtype, b.shape, b.data) for name, b in buffers.items()}
