"""`flashrt bench restore`: bringing a capsule back whole, and taking one, on the device."""

from collections.abc import Iterator

from flashrt.bench.engine.bounds import Bounds
from flashrt.bench.engine.options import Options
from flashrt.bench.engine.report import Figure
from flashrt.bench.engine.subject import Subject
from flashrt.engine.protocol import Capsule


def window(options: Options) -> int:
    """Tokens that this needs."""
    return max(options.context) + 1


def measure(subject: Subject, options: Options, bounds: Bounds) -> Iterator[Figure]:
    """Both ways at each length. The first time of each warms up and is not counted."""
    for length in options.context:
        capsule = subject.capsule_of(length)
        size = capsule.capsule_bytes
        times = [_restored_ms(subject, capsule) for _ in range(options.repeat + 1)]
        yield _figure("restore", length, times[1:], bounds, size)
        del capsule  # a capsule would share its rows instead of copying them
        times = [_snapshot_ms(subject) for _ in range(options.repeat + 1)]
        yield _figure("snapshot", length, times[1:], bounds, size)


def _figure(work: str, length: int, times: list[float], bounds: Bounds, size: int) -> Figure:
    rate = size / min(times) / 1e6
    return Figure.of(work, length, times, bounds.copy_ms(size), mb=size / 1e6, best_gb_per_s=rate)


def _restored_ms(subject: Subject, capsule: Capsule) -> float:
    """Nothing of it is in the live state."""
    subject.engine.reset()
    start = subject.clock.now()
    subject.engine.restore(capsule)
    return (subject.clock.now() - start) * 1e3


def _snapshot_ms(subject: Subject) -> float:
    """A whole one, which is gone afterwards."""
    start = subject.clock.now()
    capsule = subject.engine.snapshot()
    ms = (subject.clock.now() - start) * 1e3
    assert len(capsule.rows) == 1, "it shares rows with another"
    return ms
