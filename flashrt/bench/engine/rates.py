"""What this machine reaches at best, measured in the run whose figures stand beside it."""

import importlib.util
from collections.abc import Callable

import attrs
import torch
from torch import Tensor

from flashrt.bench.engine.machine import Clock

READ_BYTES = {"cuda": 4 << 30, "cpu": 128 << 20}
COPY_BYTES = {"cuda": 2 << 30, "cpu": 64 << 20}
SIDE = {"cuda": 8192, "cpu": 512}
"""Of the square matrices that are multiplied."""

TRIES = 7


@attrs.frozen
class Rates:
    """Per second."""

    read_bytes: float
    """Of a kernel that only reads."""
    copy_bytes: float
    """Of a copy on the device: bytes copied, each of them read and written."""
    flops: float
    """Of a large matrix product in the dtype that is measured."""


def measured(clock: Clock, dtype: torch.dtype) -> Rates:
    """The quickest of a few runs each; takes a second."""
    return Rates(_read_rate(clock), _copy_rate(clock), _product_rate(clock, dtype))


def _read_rate(clock: Clock) -> float:
    x = torch.ones(READ_BYTES[clock.device.type] // 2, dtype=torch.bfloat16, device=clock.device)
    return x.nbytes / seconds(clock, _reader(x))


def _copy_rate(clock: Clock) -> float:
    x = torch.ones(COPY_BYTES[clock.device.type] // 2, dtype=torch.bfloat16, device=clock.device)
    target = torch.empty_like(x)
    return x.nbytes / seconds(clock, lambda: target.copy_(x))


def _product_rate(clock: Clock, dtype: torch.dtype) -> float:
    """Of numbers like those of a model: zeros would let the chip run faster than it can."""
    side = SIDE[clock.device.type]
    a, b = (torch.randn(side, side, device=clock.device).to(dtype) for _ in range(2))
    return 2 * side**3 / seconds(clock, lambda: a @ b)


def _reader(x: Tensor) -> Callable[[], Tensor]:
    """By Triton where it runs: torch's own sum does not keep up with a GPU's memory."""
    if x.device.type == "cuda" and importlib.util.find_spec("triton") is not None:
        from flashrt.bench.engine.reading import read_all

        return lambda: read_all(x)
    words = x.view(torch.float32)
    return lambda: words.sum()


def seconds(clock: Clock, body: Callable[[], Tensor]) -> float:
    """Of the quickest run, by the host's clock: nothing is faster than what was reached once."""
    times = []
    for _ in range(TRIES):
        start = clock.now()
        body()
        times.append(clock.now() - start)
    return min(times)
