"""A model whose rows run by kernels and graphs."""

import pytest
import torch

from flashrt.engine.buffers import CHUNK, Buffers
from flashrt.engine.config import ModelConfig
from flashrt.engine.model import Model
from tests.engine.kernels.compare import CUDA, check_apart, distance

from flashrt.engine.kernels.model import KernelModel  # isort: skip
from flashrt.engine.kernels.trial import SHAPES, random_weights  # isort: skip

pytestmark = pytest.mark.gpu
KINDS = pytest.mark.parametrize("kind", ["tiny", "tiny-moe"])
CONFIG = SHAPES["tiny"]
MAX_SEQ = 5000
IDS = [(7919 * i + 11) % CONFIG.vocab_size for i in range(3 * CHUNK)]


def build(
    kind: type[Model],
    dtype: torch.dtype = torch.bfloat16,
    config: ModelConfig = CONFIG,
    kv_dtype: torch.dtype | None = None,
) -> Model:
    buffers = Buffers.allocate(config, MAX_SEQ, CUDA, dtype, kv_dtype=kv_dtype)
    model = kind(config, random_weights(config, CUDA, dtype), buffers)
    buffers.clear_start()
    return model


@torch.inference_mode()
@KINDS
@pytest.mark.parametrize("size", [2, 16, 40, 64])
def test_graphs_and_separate_launches_leave_the_same_state(kind: str, size: int):
    """One row at a time by graph, and groups without one; also over folds."""
    one, other = (build(KernelModel, config=SHAPES[kind]) for _ in range(2))
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
@KINDS
def test_a_row_whose_id_the_device_holds_is_the_row_of_that_id(kind: str):
    """Each begun behind the one before it with no look by the host, against ids that are sent."""
    one, other = (build(KernelModel, config=SHAPES[kind]) for _ in range(2))
    for model in (one, other):
        model.rows(IDS[:4], 0, 0)
    chosen = []
    for at in range(4, CHUNK):
        chosen.append(one.logits(at).argmax(-1, keepdim=True))
        one.row_ahead(chosen[-1], at, 0)
    for at, id_ in enumerate(chosen, 4):
        other.rows([int(id_)], at, 0)

    for name in ("kv", "values", "keys", "decays", "hidden", "raw"):
        assert torch.equal(getattr(one.buffers, name), getattr(other.buffers, name)), name


@torch.inference_mode()
@KINDS
def test_rows_behind_a_block_equal_the_torch_model(kind: str):
    """A prompt goes the torch way in both; then rows, in float32, a fold among them."""
    ours, theirs = (build(one, torch.float32, SHAPES[kind]) for one in (KernelModel, Model))
    start = CHUNK - 3
    for model in (ours, theirs):
        model.block(IDS[:start], 0)
        model.rows(IDS[start : start + 8], start, 0)

    assert distance(ours.logits(start + 8), theirs.logits(start + 8)) < 1e-4
    assert distance(ours.buffers.values, theirs.buffers.values) < 1e-4


@torch.inference_mode()
@pytest.mark.parametrize("kv_dtype", [torch.float8_e4m3fn, torch.bfloat16], ids=str)
def test_the_cache_has_no_say_in_who_computes(kv_dtype: torch.dtype):
    """Blocks of a bfloat16 model by kernels, of a float32 model by torch, whatever K and V are; and
    either equals the torch model over the same cache."""
    for dtype, limit in ((torch.bfloat16, 0.08), (torch.float32, 0.02)):
        ours, theirs = (build(kind, dtype, kv_dtype=kv_dtype) for kind in (KernelModel, Model))
        assert bool(ours._block_graphs) == (dtype == torch.bfloat16)
        for model in (ours, theirs):
            model.block(IDS[:100], 0)
            model.rows(IDS[100:120], 100, 1)
        assert ours.buffers.kv.dtype == kv_dtype
        assert distance(ours.logits(120), theirs.logits(120)) < limit
        kv = [model.buffers.kv[:, :, :, :120].float() for model in (ours, theirs)]
        assert distance(*kv) < limit


@torch.inference_mode()
@pytest.mark.parametrize("length", [3, 64, 100, 200, 600, 2200])
def test_a_block_by_graphs_leaves_what_the_torch_model_leaves(length: int):
    """Logits, window and the anchor of the chunk that the last row is in; also over passes."""
    ours, theirs = build(KernelModel), build(Model)
    ids, start = [(7919 * i + 11) % CONFIG.vocab_size for i in range(30 + length)], 30

    hidden = [(model.block(ids[:start], 0), model.block(ids[start:], start))[1]
              for model in (ours, theirs)]  # fmt: skip

    end = start + length
    assert distance(*hidden) < 0.05
    assert distance(ours.logits(end), theirs.logits(end)) < 0.05
    slot = (end - 1) // CHUNK % 2
    if end > CHUNK:
        assert distance(ours.buffers.anchors[:, slot], theirs.buffers.anchors[:, slot]) < 0.05


@torch.inference_mode()
@KINDS
@pytest.mark.parametrize("length", [3, 100, 500])
def test_a_graph_has_the_bits_of_a_block_launched_apart(kind: str, length: int):
    """A size's graph, and the same pass kernel by kernel."""
    one, other = (build(KernelModel, config=SHAPES[kind]) for _ in range(2))
    check_apart(one, other, (IDS * 3)[:length])


def test_every_position_has_a_bound():
    """The longest bound is the whole of K and V."""
    model = build(KernelModel)

    assert model.bounds[-1] == model.buffers.kv.shape[3]
    assert list(model.bounds) == sorted(set(model.bounds))
