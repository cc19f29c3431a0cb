"""Small subjects, and rates that make bounds easy to count."""

import functools
from typing import Any

import attrs

from flashrt.bench.engine.bounds import Bounds
from flashrt.bench.engine.options import Options
from flashrt.bench.engine.rates import Rates
from flashrt.bench.engine.subject import Subject

RATES = Rates(read_bytes=1e9, copy_bytes=1e9, flops=1e9)
WINDOW = 400

TINY = Options(
    model=None,
    shape="tiny",
    device="cpu",
    dtype="float32",
    context=(70,),
    repeat=2,
    chunk_tokens=64,
    seed=0,
    rows=(1, 4),
    append=(70,),
    tail=10,
    offsets=2,
)


def wishes(**other: Any) -> Options:
    """The smallest that measure everything."""
    return attrs.evolve(TINY, **other)


@functools.cache
def subject(shape: str = "tiny") -> Subject:
    """An engine that all tests share: each begins it anew."""
    return Subject.of(wishes(shape=shape), WINDOW)


def bounds(shape: str = "tiny") -> Bounds:
    """At a byte and an operation a nanosecond."""
    return subject(shape).bounds(RATES)
