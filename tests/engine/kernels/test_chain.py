"""Kernels that come up while the one before them ends."""

import pytest
import torch

from tests.engine.kernels.compare import CUDA

from flashrt.engine.kernels.graphs import Graph, capturing, in_one  # isort: skip
from flashrt.engine.kernels.linear import rows_linear, rows_linear_parts  # isort: skip
from flashrt.engine.kernels.norm import add_half_norm  # isort: skip

pytestmark = pytest.mark.gpu
LAYERS = 24


def chained(x: torch.Tensor, weights: list[torch.Tensor], *, apart: bool) -> torch.Tensor:
    """Products, sums and norms that each read what the one before has written; `apart`: one after
    the other."""
    x, parts = x.clone(), None
    scale = torch.ones(x.shape[1], device=CUDA)
    for weight in weights:
        half = add_half_norm(x, parts, scale, 1e-6)
        if apart:
            torch.cuda.synchronize()
        y = rows_linear(half, weight)
        if apart:
            torch.cuda.synchronize()
        parts = rows_linear_parts(y, weight)
        if apart:
            torch.cuda.synchronize()
    return add_half_norm(x, parts, scale, 1e-6).rows


@torch.inference_mode()
def test_a_chain_has_the_bits_of_kernels_that_run_alone():
    """Nothing is read before it is written, over again and within a graph too."""
    x = torch.randn(4, 1024, dtype=torch.bfloat16, device=CUDA)
    weights = [torch.randn(1024, 1024, device=CUDA).bfloat16() / 32 for _ in range(LAYERS)]
    wanted = chained(x, weights, apart=True)

    with capturing() as pool:
        graph = Graph.capture(in_one(lambda: chained(x, weights, apart=False)), pool)

    for _ in range(50):
        assert torch.equal(chained(x, weights, apart=False), wanted)
        assert torch.equal(graph.replay(), wanted)
