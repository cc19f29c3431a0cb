"""Random weights."""

import attrs
import pytest
import torch

from flashrt.bench.engine.random_weights import random_model
from flashrt.engine.live import LiveState
from flashrt.engine.shapes import PATTERN, SHAPES

CPU = torch.device("cpu")
TINY = SHAPES["tiny"]


def test_a_seed_says_every_weight():
    """A run can be repeated; another seed is another model."""
    first, again, other = (random_model(TINY, CPU, torch.float32, seed) for seed in (1, 1, 2))

    assert all(torch.equal(t, again.tensors[name]) for name, t in first.tensors.items())
    assert not any(torch.equal(t, other.tensors[name]) for name, t in first.tensors.items())
    assert first.weights.checksum != other.weights.checksum


def test_tensors_by_name_are_the_weights_memory():
    """There is one copy of a model that takes most of a device."""
    made = random_model(TINY, CPU, torch.float32)

    head = made.tensors["lm_head.weight"]
    gate = made.tensors["model.layers.0.mlp.gate_proj.weight"]
    assert head.data_ptr() == made.weights.lm_head.data_ptr()
    assert gate.data_ptr() == made.weights.layers[0].mlp.gate_up.data_ptr()


@pytest.mark.parametrize(
    ("shape", "dtype"), [("tiny", torch.bfloat16), ("tiny-moe", torch.float32)], ids=str
)
def test_values_stay_in_range_through_many_layers(shape, dtype):
    """As deep as the largest shape, logits are finite and spread like those of few layers."""
    config = attrs.evolve(SHAPES[shape], layer_types=PATTERN * 16)
    made = random_model(config, CPU, dtype)
    live = LiveState.allocate(made.config, made.weights, 128)
    live.reset()

    live.process_block(range(100))

    assert 0.3 < float(live.logits().std()) < 3
