"""A whole pass of few rows by kernels."""

import pytest
import torch
from torch import Tensor

from flashrt.engine.buffers import CHUNK
from flashrt.engine.model import Model
from tests.engine.kernels.compare import CUDA, distance

from flashrt.engine.kernels.graphs import Graph, capturing  # isort: skip
from flashrt.engine.kernels.step import RowsStep  # isort: skip
from flashrt.engine.kernels.trial import SHAPES, random_model  # isort: skip

pytestmark = pytest.mark.gpu
MAX_SEQ = 1024
IDS = [(7919 * i + 11) % 8256 for i in range(150)]


KINDS = ["tiny", "tiny-moe"]


@pytest.fixture(params=KINDS)
def model(request: pytest.FixtureRequest) -> Model:
    return random_model(SHAPES[request.param], MAX_SEQ, CUDA)


def walk(step: RowsStep, sizes: list[int]) -> Tensor:
    """All IDS in passes of these sizes; -> their final hidden rows."""
    hidden, position, anchor, turn = [], 0, 0, 0
    while position < len(IDS):
        ids = IDS[position : position + sizes[turn % len(sizes)]]
        step.place(ids, position, anchor)
        hidden.append(step.run(len(ids), keys=MAX_SEQ))
        anchor = position // CHUNK
        position, turn = position + len(ids), turn + 1
    return torch.cat(hidden)


@torch.inference_mode()
@pytest.mark.parametrize(
    ("kind", "dtype"),
    # Rounded rows may choose other experts than the torch model's, so a mixture's are not.
    [("tiny", torch.float32), ("tiny", torch.bfloat16), ("tiny-moe", torch.float32)],
    ids=str,
)
def test_a_pass_equals_the_reference(kind: str, dtype: torch.dtype):
    """Hidden rows and logits of the kernels against those of the torch model."""
    ours, theirs = (random_model(SHAPES[kind], MAX_SEQ, CUDA, dtype) for _ in range(2))
    step = RowsStep.of(ours)

    hidden = walk(step, [8])[:CHUNK]
    theirs.rows(IDS[:CHUNK], 0, 0)

    limit = 1e-4 if dtype == torch.float32 else 0.05
    assert distance(hidden, theirs.buffers.hidden[:CHUNK]) < limit
    logits = step.logits(hidden[-1:])[0]
    assert distance(logits, theirs.logits(CHUNK)) < limit


@torch.inference_mode()
def test_bits_do_not_depend_on_grouping(model: Model):
    """Every buffer of the state after one row at a time and after groups that cross folds."""
    alone = walk(RowsStep.of(model), [1])
    saved = {name: getattr(model.buffers, name).clone() for name in ("kv", "values", "hidden")}

    for sizes in ([8], [3, 5, 1, 7], [16], [64]):
        other = random_model(model.config, MAX_SEQ, CUDA)
        assert torch.equal(walk(RowsStep.of(other), sizes), alone), sizes
        for name, buffer in saved.items():
            assert torch.equal(getattr(other.buffers, name), buffer), (sizes, name)


@torch.inference_mode()
def test_a_graph_has_the_bits_of_separate_launches(model: Model):
    """At positions that it was not captured at."""
    wanted = walk(RowsStep.of(model), [4])
    other = random_model(model.config, MAX_SEQ, CUDA)
    step = RowsStep.of(other)
    with capturing() as pool:
        graph = Graph.capture(lambda: step.pieces(4, keys=MAX_SEQ), pool)
    other.buffers.clear_start()

    for position in range(0, len(IDS) - 2, 4):
        step.place(IDS[position : position + 4], position, max(0, position - 4) // CHUNK)
        assert torch.equal(graph.replay(), wanted[position : position + 4])
    assert torch.equal(other.buffers.hidden[:148], wanted[:148])


@torch.inference_mode()
def test_dead_rows_leave_nothing(model: Model):
    """A pass of more rows than live ones has their bits, and touches what they touch."""
    wanted = walk(RowsStep.of(model), [3])
    other = random_model(model.config, MAX_SEQ, CUDA)
    step, anchor = RowsStep.of(other), 0

    for position in range(0, len(IDS), 3):
        step.place(IDS[position : position + 3], position, anchor)
        assert torch.equal(step.run(16, keys=MAX_SEQ)[:3], wanted[position : position + 3])
        anchor = position // CHUNK
    for name in ("kv", "raw", "keys", "values", "decays", "anchors", "hidden"):
        assert torch.equal(getattr(other.buffers, name), getattr(model.buffers, name)), name
