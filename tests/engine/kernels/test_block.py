"""A whole pass of a block by kernels."""

import pytest
import torch

from flashrt.engine.buffers import CHUNK
from flashrt.engine.model import Model
from flashrt.engine.passes import ring_index
from tests.engine.kernels.compare import CUDA, distance

from flashrt.engine.kernels.block import BlockStep  # isort: skip
from flashrt.engine.kernels.trial import SHAPES, random_model  # isort: skip

pytestmark = pytest.mark.gpu
KINDS = pytest.mark.parametrize("kind", ["tiny", "tiny-moe"])
MAX_SEQ = 2048
IDS = [(7919 * i + 11) % 8256 for i in range(900)]


def run(model: Model, start: int, count: int, size: int) -> torch.Tensor:
    """IDS[:start] by one pass, then `count` more by one of `size` rows."""
    step = BlockStep.of(model)
    if start:
        step.place(IDS[:start], 0)
        step.run(start, MAX_SEQ)
        if start % CHUNK == 0:
            chunk = start // CHUNK
            model.buffers.anchors[:, chunk % 2] = model.folded(chunk - 1)
    step.place(IDS[start : start + count], start)
    return step.run(size, MAX_SEQ)[:count].clone()


@torch.inference_mode()
@pytest.mark.parametrize(
    ("start", "count"), [(0, 1), (0, 40), (0, 700), (64, 64), (30, 100), (600, 200)]
)
def test_a_pass_equals_the_reference(start: int, count: int):
    """Hidden rows and state against those of the torch model in bfloat16."""
    ours, theirs = (random_model(SHAPES["tiny"], MAX_SEQ, CUDA) for _ in range(2))

    hidden = run(ours, start, count, count)
    if start:
        theirs.block(IDS[:start], 0)
        if start % CHUNK == 0:
            theirs.buffers.anchors[:, start // CHUNK % 2] = theirs.folded(start // CHUNK - 1)
    wanted = theirs.block(IDS[start : start + count], start)

    assert distance(hidden, wanted) < 0.05
    end = start + count
    kv = (model.buffers.kv[:, :, :, :end] for model in (ours, theirs))
    assert distance(*kv) < 0.05
    at = ring_index(max(0, end - 190), end, CUDA)
    assert torch.equal(ours.buffers.hidden[at][-min(count, 190) :], hidden[-190:])


@torch.inference_mode()
@KINDS
@pytest.mark.parametrize("size", [128, 256])
def test_dead_rows_leave_nothing(kind: str, size: int):
    """What is not a live row's is as it was before."""
    model = random_model(SHAPES[kind], MAX_SEQ, CUDA)
    for tensor in (model.buffers.kv, model.buffers.keys, model.buffers.hidden):
        tensor.fill_(7)

    run(model, 0, 70, size)

    b = model.buffers
    assert torch.all(b.kv[:, :, :, 70:] == 7)
    assert torch.all(b.keys.flatten(1, 2)[:, 70:] == 7)
    assert torch.all(b.hidden[70:] == 7)
    assert torch.all(b.values.flatten(1, 2)[:, 70:] == 0)


@torch.inference_mode()
@KINDS
def test_a_pass_repeats_its_bits(kind: str):
    """The same block twice from nothing, in passes of one size."""
    one, other = (random_model(SHAPES[kind], MAX_SEQ, CUDA) for _ in range(2))

    assert torch.equal(run(one, 100, 300, 512), run(other, 100, 300, 512))
    for name in ("kv", "values", "keys", "decays", "anchors", "hidden", "raw"):
        assert torch.equal(getattr(one.buffers, name), getattr(other.buffers, name)), name
