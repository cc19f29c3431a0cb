"""`flashrt bench parking`: what decode pays while a state is copied to the host's memory.

Steps are timed by the host, from the call to the id: waiting for the device would wait for the copy
as well. Copies follow each other without a pause; a server makes one where a conversation leaves.
"""

import statistics
import time
from collections.abc import Callable, Iterator

import attrs

from flashrt.bench.engine.bounds import Bounds
from flashrt.bench.engine.bus import Bus, begun, take_room
from flashrt.bench.engine.options import Options
from flashrt.bench.engine.report import Figure
from flashrt.bench.engine.subject import GREEDY, Subject
from flashrt.engine.protocol import Capsule, HostCopy

WARM_UP = 3
"""Steps that are not counted; the first one behind a restore processes no row."""


def window(options: Options) -> int:
    """Tokens that this needs."""
    return max(options.context) + WARM_UP + options.repeat + 1


@attrs.define
class Parking:
    """Copies of one capsule, one behind the other."""

    subject: Subject
    capsule: Capsule
    under_way: list[HostCopy] = attrs.field(factory=list)
    begun_ms: list[float] = attrs.field(factory=list)
    """What beginning took of the engine thread."""

    def __call__(self) -> None:
        """Begin one, if none is under way."""
        if all(copy.done for copy in self.under_way):
            self.under_way.clear()
            start = time.perf_counter()
            self.under_way = begun(self.subject, self.capsule)
            self.begun_ms.append((time.perf_counter() - start) * 1e3)

    def whole(self) -> None:
        """Wait for what is under way."""
        for copy in self.under_way:
            copy.wait()


def measure(subject: Subject, options: Options, bounds: Bounds) -> Iterator[Figure]:
    """At each length: a copy by itself, a step by itself, and a step beside copies."""
    bus = Bus.measured(subject.clock)
    take_room(subject, max(options.context))
    for length in options.context:
        capsule = subject.capsule_of(length)
        size, bound = capsule.capsule_bytes, bounds.step_ms(1, length)
        copies = [_parked_ms(subject, capsule) for _ in range(WARM_UP)]
        yield Figure.of(
            "parked",
            length,
            copies,
            bus.away_ms(size),
            mb=size / 1e6,
            best_gb_per_s=size / min(copies) / 1e6,
            bus_gb_per_s=bus.away / 1e9,
        )
        alone = _steps_ms(subject, capsule, options.repeat, lambda: None)
        yield Figure.of("decode, nothing beside it", length, alone, bound)
        parking = Parking(subject, capsule)
        beside = _steps_ms(subject, capsule, options.repeat, parking)
        parking.whole()
        yield Figure.of(
            "decode, a state being parked",
            length,
            beside,
            bound,
            against_alone=statistics.median(beside) / statistics.median(alone),
            mean_against_alone=statistics.mean(beside) / statistics.mean(alone),
            begun_ms=statistics.median(parking.begun_ms),
        )


def _parked_ms(subject: Subject, capsule: Capsule) -> float:
    start = subject.clock.now()
    for copy in begun(subject, capsule):
        copy.wait()
    return (subject.clock.now() - start) * 1e3


def _steps_ms(
    subject: Subject, capsule: Capsule, steps: int, beside: Callable[[], None]
) -> list[float]:
    """Of so many steps from the capsule on; `beside` is called before each, and not counted."""
    subject.engine.restore(capsule)
    decoding, times = subject.engine.decode(GREEDY), []
    for _ in range(WARM_UP + steps):
        beside()
        start = time.perf_counter()
        next(decoding)
        times.append((time.perf_counter() - start) * 1e3)
    return times[WARM_UP:]
