"""What is said to be needed is what serving counts."""

import attrs
import pytest
import torch

from flashrt.demo import DEMO_PATH
from flashrt.engine.checkpoint import opened
from flashrt.engine.config import FULL
from flashrt.engine.kvcache import FP8
from flashrt.engine.memory import Needs
from flashrt.engine.placement import Placement
from flashrt.errors import CannotServe
from flashrt.inspect.needs import demand

GPU = Placement(torch.device("cuda"), torch.bfloat16)


def test_every_window_takes_what_serving_counts():
    """Part by part; with nothing asked for, the shorter ones of the list and the model's own."""
    checkpoint = opened(DEMO_PATH)
    told = demand(checkpoint, GPU, 2_300_000_000)
    needs = Needs(checkpoint.config, GPU, checkpoint.layout, 2048, None)
    assert [window.max_seq for window in told.windows] == [32768, 40960]
    for window in told.windows:
        memory = needs.of(window.max_seq, told.available_bytes)
        parts = (window.weights_bytes, window.state_bytes, window.step_bytes)
        assert sum(parts) + window.graphs_and_libraries_bytes == window.needed_bytes
        assert (window.needed_bytes, window.fits) == (memory.needed, memory.fits)
    assert told.longest == needs.longest(told.available_bytes).max_seq < 40960


def test_keys_and_values_of_8_bits_are_told_and_counted():
    """The state of each window is smaller by a byte for each of their numbers; weights are not."""
    checkpoint, narrow = opened(DEMO_PATH), attrs.evolve(GPU, kv_dtype=FP8)
    wide, half = (demand(checkpoint, place, 10**10, (32768,)) for place in (GPU, narrow))
    assert (wide.kv_dtype, half.kv_dtype) == ("bfloat16", "float8_e4m3fn")
    c = checkpoint.config
    numbers = 2 * c.num_kv_heads * c.head_dim * 32768 * (c.layer_types.count(FULL) + 1)
    (one,), (other,) = wide.windows, half.windows
    assert one.state_bytes - other.state_bytes == numbers
    assert one.weights_bytes == other.weights_bytes


def test_windows_may_be_asked_for_and_nothing_may_fit():
    """In the order asked; there is no longest one then."""
    told = demand(opened(DEMO_PATH), GPU, 1000, (100, 64))
    assert [window.max_seq for window in told.windows] == [100, 64]
    assert not any(window.fits for window in told.windows)
    assert told.longest is None


def test_a_window_that_the_model_does_not_have_is_refused():
    """With both numbers."""
    with pytest.raises(CannotServe, match="--max-seq 40961: the model's window is 40960"):
        demand(opened(DEMO_PATH), GPU, 10**10, (40961,))
