"""A model whose rows run by kernels and graphs."""

import copy

import pytest
import torch

from flashrt.engine.buffers import CHUNK, Buffers
from flashrt.engine.model import Model
from tests.engine.kernels.compare import CUDA, distance

from flashrt.engine.kernels.model import KernelModel  # isort: skip
from flashrt.engine.kernels.trial import SHAPES, random_weights  # isort: skip

pytestmark = pytest.mark.gpu
CONFIG = SHAPES["tiny"]
MAX_SEQ = 5000
IDS = [(7919 * i + 11) % CONFIG.vocab_size for i in range(3 * CHUNK)]


def build(kind: type[Model], dtype: torch.dtype = torch.bfloat16) -> Model:
    buffers = Buffers.allocate(CONFIG, MAX_SEQ, CUDA, dtype)
    model = kind(CONFIG, random_weights(CONFIG, CUDA, dtype), buffers)
    buffers.clear_start()
    return model


@torch.inference_mode()
@pytest.mark.parametrize("size", [2, 16, 40, 64])
def test_graphs_and_separate_launches_leave_the_same_state(size: int):
    """One row at a time by graph, and groups without one; also over folds."""
    one, other = build(KernelModel), build(KernelModel)
    anchor = 0
    for i, id_ in enumerate(IDS):
        one.rows([id_], i, anchor)
        anchor = i // CHUNK
    anchor = 0
    for start in range(0, len(IDS), size):
        other.rows(IDS[start : start + size], start, anchor)
        anchor = start // CHUNK

    assert torch.equal(one.buffers.hidden, other.buffers.hidden)
    assert torch.equal(one.buffers.kv[:, :, :, : len(IDS)], other.buffers.kv[:, :, :, : len(IDS)])
    assert torch.equal(one.buffers.values, other.buffers.values)
    assert torch.equal(one.logits(len(IDS)), other.logits(len(IDS)))


@torch.inference_mode()
def test_rows_behind_a_block_equal_the_torch_model():
    """A prompt goes the torch way in both; then rows, in float32, a fold among them."""
    ours, theirs = build(KernelModel, torch.float32), build(Model, torch.float32)
    start = CHUNK - 3
    for model in (ours, theirs):
        model.block(IDS[:start], 0)
        model.rows(IDS[start : start + 8], start, 0)

    assert distance(ours.logits(start + 8), theirs.logits(start + 8)) < 1e-4
    assert distance(ours.buffers.values, theirs.buffers.values) < 1e-4


@torch.inference_mode()
@pytest.mark.parametrize("length", [3, 64, 100, 200])
def test_a_short_block_leaves_what_rows_leave(length: int):
    """Hidden rows, window and the anchor of the chunk that the last row is in."""
    one, other = build(KernelModel), build(KernelModel)
    start, anchor = 30, 0
    for model in (one, other):
        model.block(IDS[:start], 0)
    ids = [*IDS, *IDS][start : start + length]

    hidden = one.block(ids, start)
    for i, id_ in enumerate(ids):
        other.rows([id_], start + i, anchor)
        anchor = (start + i) // CHUNK

    at = torch.arange(max(start, start + length - 190), start + length, device=CUDA) % 192
    assert torch.equal(hidden[-len(at) :], other.buffers.hidden[at])
    assert torch.equal(one.buffers.anchors[:, anchor % 2], other.buffers.anchors[:, anchor % 2])
    assert torch.equal(one.buffers.values, other.buffers.values)


@torch.inference_mode()
def test_a_copy_goes_on_alike():
    """Copying a model keeps its state, and the two do not share it."""
    one = build(KernelModel)
    one.block(IDS[:50], 0)
    other = copy.deepcopy(one)
    one.rows(IDS[50:53], 50, 0)
    assert not torch.equal(one.buffers.hidden, other.buffers.hidden)

    other.rows(IDS[50:53], 50, 0)

    assert torch.equal(one.buffers.hidden, other.buffers.hidden)
    assert torch.equal(one.logits(53), other.logits(53))


def test_every_position_has_a_bound():
    """The longest bound is the whole of K and V."""
    model = build(KernelModel)

    assert model._bounds[-1] == model.buffers.kv.shape[3]
    assert list(model._bounds) == sorted(set(model._bounds))
