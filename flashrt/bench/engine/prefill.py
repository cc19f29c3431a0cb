"""`flashrt bench prefill`: time to the first id of cold prompts, and of a few more tokens behind a
state that is there: the hot one, or one that is restored from a capsule on the device.
"""

from collections.abc import Iterator

from flashrt.bench.engine.bounds import Bounds
from flashrt.bench.engine.options import Options
from flashrt.bench.engine.report import Figure
from flashrt.bench.engine.subject import Subject
from flashrt.engine.protocol import Capsule

CHUNK = 64
"""Positions modulo this differ in what a pass does; see `engine.buffers`."""


def window(options: Options) -> int:
    """Tokens that this needs."""
    return max(*options.context, max(options.append) + CHUNK + options.tail) + 1


def measure(subject: Subject, options: Options, bounds: Bounds) -> Iterator[Figure]:
    """Cold prompts of each length, then appends behind each."""
    for length in options.context:
        yield _cold(subject, options, bounds, length)
    for length in options.append:
        yield from _appends(subject, options, bounds, length)


def _cold(subject: Subject, options: Options, bounds: Bounds, length: int) -> Figure:
    times = []
    for _ in range(options.repeat + 1):
        prompt = subject.ids(length)
        subject.engine.reset()
        times.append(subject.timed_first_id(prompt))
    times = times[1:]  # the first one warms up
    bound = bounds.prompt_ms(length)
    rate = bounds.prompt_flops(length) / min(times) / 1e9
    return Figure.of("cold prompt", length, times, bound, best_tflops_per_s=rate)


def _appends(subject: Subject, options: Options, bounds: Bounds, length: int) -> Iterator[Figure]:
    """At offsets spread over a chunk, the capsule of `length` being on the device."""
    engine, capsule = subject.engine, subject.capsule_of(length)
    hot: list[float] = []
    restored: list[float] = []
    for number in range(-1, options.offsets):
        offset = max(0, number) * CHUNK // options.offsets
        state = _behind(subject, capsule, offset)
        hot.append(subject.timed_first_id(subject.ids(options.tail)))
        engine.reset()
        restored.append(_restored(subject, state, options.tail))
    name, bound = f"{options.tail} more tokens", bounds.prompt_ms(options.tail, length)
    yield Figure.of(f"{name}, hot", length, hot[1:], bound)
    copied = bound + bounds.copy_ms(capsule.capsule_bytes)
    yield Figure.of(f"{name}, restored", length, restored[1:], copied)


def _behind(subject: Subject, capsule: Capsule, offset: int) -> Capsule:
    """Make the live state that of `offset` tokens behind the capsule, and a capsule of it."""
    subject.engine.restore(capsule)
    if offset:
        subject.fill(subject.ids(offset))
    return subject.engine.snapshot()


def _restored(subject: Subject, capsule: Capsule, tail: int) -> float:
    """Milliseconds to bring the capsule back whole, and to the first id behind `tail` tokens."""
    ids = subject.ids(tail)
    start = subject.clock.now()
    subject.engine.restore(capsule)
    subject.first_id(ids)
    return (subject.clock.now() - start) * 1e3
