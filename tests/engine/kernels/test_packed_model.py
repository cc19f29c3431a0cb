"""Models with packed weights by kernels and graphs."""

import attrs
import pytest
import torch

from flashrt.bench.engine.options import NUMBER_FORMATS
from flashrt.bench.engine.random_weights import random_model
from flashrt.engine.buffers import CHUNK, Buffers
from flashrt.engine.config import ModelConfig
from flashrt.engine.kernels import model_for
from flashrt.engine.matrix import Experts, Packed
from flashrt.engine.model import Model
from flashrt.engine.shapes import TINY, TINY_MIXTURE
from flashrt.engine.weights import ModelWeights
from tests.engine.kernels.compare import CUDA, check_apart, distance

from flashrt.engine.kernels.model import KernelModel  # isort: skip

pytestmark = pytest.mark.gpu
FORMATS = pytest.mark.parametrize("number_format", NUMBER_FORMATS)
MAX_SEQ = 3000
IDS = [(7919 * i + 11) % TINY.vocab_size for i in range(3 * CHUNK)]


def build(number_format: str, kind: type[Model] = KernelModel, config: ModelConfig = TINY) -> Model:
    made = random_model(config, CUDA, torch.bfloat16, number_format=number_format)
    model = kind(config, made.weights, Buffers.allocate(config, MAX_SEQ, CUDA, torch.bfloat16))
    model.buffers.clear_start()
    return model


SHAPES = pytest.mark.parametrize("config", [TINY, TINY_MIXTURE], ids=["dense", "mixture"])


def kind_of(config: ModelConfig, weights: ModelWeights, dtype: torch.dtype) -> type[Model]:
    assert weights.packed
    return type(model_for(config, weights, Buffers.allocate(config, 128, CUDA, dtype)))


@SHAPES
@FORMATS
def test_packed_models_of_bfloat16_run_by_kernels(number_format: str, config: ModelConfig):
    """Those of float32 by torch."""
    for dtype, kind in ((torch.bfloat16, KernelModel), (torch.float32, Model)):
        weights = random_model(config, CUDA, dtype, number_format=number_format).weights
        assert kind_of(config, weights, dtype) is kind


@FORMATS
def test_experts_of_a_layer_in_several_forms_run_by_torch(number_format: str):
    """As a whole, whatever the other layers are."""
    weights = random_model(TINY_MIXTURE, CUDA, torch.bfloat16, number_format=number_format).weights
    layer = weights.layers[1]
    down = layer.mlp.down
    halves = down.stack.cut(0, 4 * down.rows), down.stack.cut(4 * down.rows, 8 * down.rows)
    apart = Packed((halves[0].parts[0], halves[1].parts[0]), torch.bfloat16)
    mlp = attrs.evolve(layer.mlp, down=Experts(apart, down.rows))
    layers = (weights.layers[0], attrs.evolve(layer, mlp=mlp), *weights.layers[2:])

    mixed = attrs.evolve(weights, layers=layers)

    assert kind_of(TINY_MIXTURE, mixed, torch.bfloat16) is Model


@torch.inference_mode()
@SHAPES
@FORMATS
@pytest.mark.parametrize("size", [2, 16, 40, 64])
def test_graphs_of_any_size_leave_the_same_state(
    number_format: str, size: int, config: ModelConfig
):
    """One row at a time and in groups, also over folds."""
    one, other = (build(number_format, config=config) for _ in range(2))
    for model, step in ((one, 1), (other, size)):
        anchor = 0
        for start in range(0, len(IDS), step):
            model.rows(IDS[start : start + step], start, anchor)
            anchor = start // CHUNK

    for name in ("hidden", "values", "kv"):
        assert torch.equal(getattr(one.buffers, name), getattr(other.buffers, name)), name
    assert torch.equal(one.logits(len(IDS)), other.logits(len(IDS)))


@torch.inference_mode()
@FORMATS
@pytest.mark.parametrize("length", [3, 64, 100, 200, 600, 2200])
def test_a_block_leaves_what_the_torch_model_leaves(number_format: str, length: int):
    """And rows behind it give its logits; both with the products that a length has."""
    ours, theirs = build(number_format), build(number_format, Model)
    ids, start = [(7919 * i + 11) % TINY.vocab_size for i in range(38 + length)], 30

    hidden = [(model.block(ids[:start], 0), model.block(ids[start:-8], start))[1]
              for model in (ours, theirs)]  # fmt: skip

    end = start + length
    assert distance(*hidden) < 0.05
    for model in (ours, theirs):
        if end % CHUNK == 0:
            model.buffers.anchors[:, end // CHUNK % 2] = model.folded(end // CHUNK - 1)
        model.rows(ids[-8:], end, end // CHUNK)
    assert distance(ours.logits(end + 8), theirs.logits(end + 8)) < 0.05


@torch.inference_mode()
@SHAPES
@FORMATS
@pytest.mark.parametrize("length", [3, 100, 500])
def test_a_blocks_graph_has_the_bits_of_separate_launches(
    number_format: str, length: int, config: ModelConfig
):
    """Of the same size; dead rows leave nothing."""
    one, other = (build(number_format, config=config) for _ in range(2))
    ids = [(7919 * i + 11) % TINY.vocab_size for i in range(length)]

    check_apart(one, other, ids)
