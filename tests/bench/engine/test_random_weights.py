"""Random weights."""

import attrs
import pytest
import torch

from flashrt.bench.engine.options import NUMBER_FORMATS
from flashrt.bench.engine.random_weights import random_layout, random_model
from flashrt.engine.live import LiveState
from flashrt.engine.matrix import Experts, Packed, dense
from flashrt.engine.shapes import PATTERN, SHAPES
from flashrt.engine.tensor_plan import allocate_all

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


@pytest.mark.parametrize("number_format", NUMBER_FORMATS)
@pytest.mark.parametrize("shape", ["tiny", "tiny-moe"])
def test_packed_weights_are_as_large_as_plain_ones(shape, number_format):
    """In every layer, with the spread that they would have; embedding, head and MTP layer plain."""
    made = random_model(SHAPES[shape], CPU, torch.bfloat16, 3, number_format)
    assert made.weights.packed
    for layer in made.weights.layers:
        for matrix in (layer.mlp.gate_up, layer.mlp.down):
            packed = matrix.stack if isinstance(matrix, Experts) else matrix
            assert isinstance(packed, Packed)
            numbers = dense(packed, 0, len(packed), torch.float32)
            assert float(numbers.std()) == pytest.approx(packed.shape[1] ** -0.5, rel=0.05)
    assert isinstance(made.weights.lm_head, torch.Tensor)
    assert isinstance(made.weights.mtp.layer.mlp.down, torch.Tensor)
    live = LiveState.allocate(made.config, made.weights, 128)
    live.reset()
    live.process_block(range(70))
    assert 0.3 < float(live.logits().std()) < 3


def test_a_packed_model_of_the_largest_shape_is_as_large_as_published_ones():
    """30 GB in FP8 and 19 in int4 with embedding, head and MTP layer in bfloat16."""
    config = SHAPES["27b"]
    sizes = {
        name: allocate_all(config, "meta", torch.bfloat16, random_layout(config, name)).nbytes
        for name in NUMBER_FORMATS
    }
    assert sizes["fp8"] == pytest.approx(30.3e9, rel=0.01)
    assert sizes["int4"] == pytest.approx(18.8e9, rel=0.01)
    assert sizes["int4"] < sizes["nvfp4"] < sizes["fp8"]
