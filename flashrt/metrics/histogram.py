"""A cumulative histogram, as Prometheus defines it."""

from bisect import bisect_left
from collections.abc import Iterator
from itertools import accumulate

import attrs


@attrs.define
class Histogram:
    """Counts of values by upper bound. `bounds` rise; a value equal to a bound lies below it."""

    bounds: tuple[float, ...]
    total: float = 0.0
    """The sum of all values."""
    _counts: list[int] = attrs.field(init=False)

    @_counts.default
    def _none_yet(self) -> list[int]:
        return [0] * (len(self.bounds) + 1)

    def observe(self, value: float) -> None:
        """Count one value."""
        self._counts[bisect_left(self.bounds, value)] += 1
        self.total += value

    @property
    def count(self) -> int:
        """How many values there were."""
        return sum(self._counts)

    def cumulative(self) -> Iterator[tuple[float, int]]:
        """(bound, values at or below it), with infinity at the end."""
        return zip((*self.bounds, float("inf")), accumulate(self._counts), strict=True)
