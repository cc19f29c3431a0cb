"""Host memory that is taken once and given out in pages, for as long as anybody refers to it.

An extent is one run of pages, as an array of bytes. Whatever is made of an extent (parts of it,
tensors and views of bytes, also those in another thread) refers to it, and its pages are free when
the last of these is gone. So nothing has to be given back, and nothing can be given back too soon.
"""

import weakref
from collections import deque
from collections.abc import Sequence

import numpy as np

from flashrt.engine.pages import Pages

PAGE_BYTES = 1 << 20
"""The unit of `--host-capsule-budget-mb`. Pages that lie together are copied together."""

Extent = np.ndarray
"""[bytes] uint8, not an array of any other base."""


class Arena:
    """The memory of some pieces. One thread takes; any thread may let go."""

    def __init__(self, pieces: Sequence[np.ndarray], page_bytes: int = PAGE_BYTES) -> None:
        """`pieces`: writable uint8 arrays; what is no whole page of one is not used."""
        self.page_bytes = page_bytes
        self._pieces = list(pieces)
        counts = [len(piece) // page_bytes for piece in pieces]
        # A number lies between the pages of two pieces: no run goes from one to the next.
        self._stride = max(counts, default=0) + 1
        starts = [number * self._stride for number in range(len(counts))]
        runs = zip(starts, counts, strict=True)
        self._pages = Pages(range(start, start + count) for start, count in runs)
        self.size_bytes = self._pages.count * page_bytes
        self._gone: deque[range] = deque()

    def rounded(self, size_bytes: int) -> int:
        """What so many bytes take."""
        return -(-size_bytes // self.page_bytes) * self.page_bytes

    @property
    def free_bytes(self) -> int:
        """What can be taken now."""
        self._collect()
        return self._pages.count * self.page_bytes

    def take(self, size_bytes: int) -> tuple[Extent, ...]:
        """At least so many bytes. Raises MemoryError where fewer are free."""
        self._collect()
        return tuple(
            map(self._extent, self._pages.take(self.rounded(size_bytes) // self.page_bytes))
        )

    def _extent(self, run: range) -> Extent:
        piece, first = divmod(run.start, self._stride)
        start, size = first * self.page_bytes, len(run) * self.page_bytes
        extent = np.frombuffer(self._pieces[piece].data[start : start + size], np.uint8)
        # Only noted: the last reference may go in any thread, also in the midst of `take`.
        weakref.finalize(extent, self._gone.append, run).atexit = False
        return extent

    def _collect(self) -> None:
        while self._gone:
            self._pages.give(self._gone.popleft())
