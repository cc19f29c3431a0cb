"""What the machine reaches."""

import attrs
import torch

from flashrt.bench.engine.machine import Clock
from flashrt.bench.engine.rates import measured


def test_rates_are_those_of_a_machine():
    """Between a megabyte and a petabyte a second; a copy moves each byte twice, so it is slower
    than reading alone."""
    rates = measured(Clock(torch.device("cpu")), torch.float32)

    assert all(1e6 < rate < 1e15 for rate in attrs.astuple(rates))
    assert rates.copy_bytes < rates.read_bytes
