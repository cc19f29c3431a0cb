"""Samples of one figure, and what is said of them."""

import math
import statistics
from collections.abc import Sequence

import attrs


def percentile(samples: Sequence[float], share: float) -> float:
    """The smallest sample that at least `share` of all are not above."""
    ordered = sorted(samples)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


@attrs.frozen
class Spread:
    """Milliseconds: the middle, the slow end, and the worst."""

    count: int
    p50_ms: float
    p99_ms: float
    max_ms: float

    @classmethod
    def of(cls, samples_ms: Sequence[float]) -> "Spread":
        """Of at least one sample."""
        return cls(
            len(samples_ms),
            round(statistics.median(samples_ms), 3),
            round(percentile(samples_ms, 0.99), 3),
            round(max(samples_ms), 3),
        )


@attrs.frozen
class Pair:
    """The same figure of our server and of the other, in milliseconds."""

    ours_ms: float
    other_ms: float

    @classmethod
    def of(cls, ours_ms: Sequence[float], other_ms: Sequence[float]) -> "Pair":
        """Medians."""
        ours, other = statistics.median(ours_ms), statistics.median(other_ms)
        return cls(round(ours, 4), round(other, 4))

    @property
    def ratio(self) -> float | None:
        """Ours over the other's; None where the other is nothing."""
        return round(self.ours_ms / self.other_ms, 2) if self.other_ms > 0 else None

    @property
    def extra_ms(self) -> float:
        """What ours takes more."""
        return round(self.ours_ms - self.other_ms, 4)

    def report(self) -> dict[str, float | None]:
        """For JSON."""
        return {**attrs.asdict(self), "ratio": self.ratio, "extra_ms": self.extra_ms}
