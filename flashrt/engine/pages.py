"""Which pages of a memory are free. Pages that follow each other by number follow in memory.

What is asked for need not lie together: it is cut where no free run is long enough. So there is
nothing to fragment, and whatever fits by the number of pages fits.
"""

from bisect import bisect
from collections.abc import Iterable

import attrs


@attrs.define(init=False)
class Pages:
    """Free pages, as runs of numbers that rise and do not touch."""

    _free: list[range]
    count: int
    """Pages that are free."""

    def __init__(self, runs: Iterable[range]) -> None:
        """All of `runs` are free; none of them may overlap."""
        self._free, self.count = [], 0
        for run in runs:
            self.give(run)

    def take(self, count: int) -> tuple[range, ...]:
        """So many pages, in as few runs as there are: the shortest that has them all, else the
        longest first. Raises MemoryError, and changes nothing, where fewer are free."""
        if count > self.count:
            raise MemoryError(f"{count} pages of host memory are wanted, {self.count} are free")
        self.count -= count
        long_enough = [run for run in self._free if len(run) >= count]
        runs = [min(long_enough, key=len)] if long_enough else sorted(self._free, key=len)
        taken: dict[int, range] = {}
        while count:
            run = runs.pop()
            taken[run.start] = run[:count]
            count -= len(taken[run.start])
        left = (run[len(taken.get(run.start, ())) :] for run in self._free)
        self._free = [run for run in left if run]
        return tuple(taken.values())

    def give(self, run: range) -> None:
        """A run is free again, or part of one. Raises ValueError where any of it is free."""
        if not run:
            return
        at = bisect(self._free, run.start, key=lambda free: free.start)
        before, after = self._free[max(0, at - 1) : at], self._free[at : at + 1]
        if any(free.stop > run.start for free in before) or any(
            free.start < run.stop for free in after
        ):
            raise ValueError(f"pages {run.start} to {run.stop} are free already")
        self.count += len(run)
        joined = run
        if before and before[0].stop == run.start:
            joined, at = range(before[0].start, joined.stop), at - 1
        if after and after[0].start == run.stop:
            joined = range(joined.start, after[0].stop)
        last = at + (joined.start < run.start) + (joined.stop > run.stop)
        self._free[at:last] = [joined]
