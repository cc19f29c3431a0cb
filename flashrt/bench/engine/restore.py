"""`flashrt bench restore`: bringing a capsule back whole, and taking one, on the device and from
the host's memory; and the first id behind it and a few more tokens.
"""

from collections.abc import Iterator

from flashrt.bench.engine.bounds import Bounds
from flashrt.bench.engine.bus import Bus, begun, moved, parts, take_room
from flashrt.bench.engine.options import DEVICE, HOST, Options
from flashrt.bench.engine.report import Figure
from flashrt.bench.engine.subject import Subject
from flashrt.engine.protocol import Capsule


def window(options: Options) -> int:
    """Tokens that this needs."""
    return max(options.context) + options.tail + 1


def measure(subject: Subject, options: Options, bounds: Bounds) -> Iterator[Figure]:
    """All ways at each length. The first time of each warms up and is not counted."""
    bus = None
    if HOST in options.sources:
        bus = Bus.measured(subject.clock)
        take_room(subject, max(options.context))
    for length in options.context:
        if DEVICE in options.sources:
            yield from _on_device(subject, options, bounds, length)
        if bus is not None:
            yield from _from_host(subject, options, bounds, bus, length)


def _on_device(subject: Subject, options: Options, bounds: Bounds, length: int) -> Iterator[Figure]:
    capsule = subject.capsule_of(length)
    size = capsule.capsule_bytes
    copied_ms = bounds.copy_ms(size)
    times = [_restored_ms(subject, capsule) for _ in range(options.repeat + 1)]
    yield _figure("restore", length, times, copied_ms, size)
    times = [_first_id_ms(subject, capsule, options.tail) for _ in range(options.repeat + 1)]
    yield _answer("restored", options, length, times, bounds, copied_ms)
    del capsule  # a capsule would share its rows instead of copying them
    subject.engine.reset()
    subject.fill(subject.ids(length))
    times = [_snapshot_ms(subject) for _ in range(options.repeat + 1)]
    yield _figure("snapshot", length, times, copied_ms, size)


def _from_host(
    subject: Subject, options: Options, bounds: Bounds, bus: Bus, length: int
) -> Iterator[Figure]:
    """As a server does it where the device has room for the capsule, which it is in afterwards;
    and where it has none."""
    capsule = subject.capsule_of(length)
    capsule = moved(capsule, [copy.wait() for copy in begun(subject, capsule)])
    size, count = capsule.capsule_bytes, options.repeat + 1
    over_ms = bus.back_ms(size)
    times = [_restored_ms(subject, capsule, lifts=True) for _ in range(count)]
    yield _figure("restore from the host", length, times, over_ms + bounds.copy_ms(size), size)
    times = [_restored_ms(subject, capsule) for _ in range(count)]
    bus_rate = bus.back / 1e9
    yield _figure(
        "the same, without room here", length, times, over_ms, size, bus_gb_per_s=bus_rate
    )
    times = [_first_id_ms(subject, capsule, options.tail, lifts=True) for _ in range(count)]
    yield _answer("from the host", options, length, times, bounds, over_ms)


def _figure(
    work: str, length: int, times: list[float], bound_ms: float, size: int, **more: float
) -> Figure:
    """All bytes of the capsule are copied, and the rate is of them."""
    more = {"mb": size / 1e6, "best_gb_per_s": size / min(times[1:]) / 1e6, **more}
    return Figure.of(work, length, times[1:], bound_ms, **more)


def _answer(
    how: str,
    options: Options,
    length: int,
    times: list[float],
    bounds: Bounds,
    restore_bound_ms: float,
) -> Figure:
    bound_ms = restore_bound_ms + bounds.prompt_ms(options.tail, length)
    return Figure.of(f"{options.tail} more tokens, {how}", length, times[1:], bound_ms)


def _restore(subject: Subject, capsule: Capsule, *, lifts: bool) -> None:
    if lifts:
        capsule = moved(capsule, [subject.engine.to_device(part) for part in parts(capsule)])
    subject.engine.restore(capsule)


def _restored_ms(subject: Subject, capsule: Capsule, *, lifts: bool = False) -> float:
    """Nothing of it is in the live state."""
    subject.engine.reset()
    start = subject.clock.now()
    _restore(subject, capsule, lifts=lifts)
    return (subject.clock.now() - start) * 1e3


def _first_id_ms(subject: Subject, capsule: Capsule, tail: int, *, lifts: bool = False) -> float:
    """Bringing it back, `tail` more tokens, and the id behind them."""
    ids = subject.ids(tail)
    subject.engine.reset()
    start = subject.clock.now()
    _restore(subject, capsule, lifts=lifts)
    subject.first_id(ids)
    return (subject.clock.now() - start) * 1e3


def _snapshot_ms(subject: Subject) -> float:
    """A whole one, which is gone afterwards."""
    start = subject.clock.now()
    capsule = subject.engine.snapshot()
    ms = (subject.clock.now() - start) * 1e3
    assert len(capsule.rows) == 1, "it shares rows with another"
    return ms
