"""The feed-forward half of a layer by kernels, of either kind."""

import pytest
import torch

from flashrt.engine.ffn import feed_forward
from flashrt.engine.passes import BlockPass
from flashrt.engine.weights import FfnWeights
from tests.engine.kernels.compare import distance, noise
from tests.engine.kernels.mixtures import SMALL, halved, living, whole

from flashrt.engine.kernels import ffn  # isort: skip

pytestmark = pytest.mark.gpu
MIXED = SMALL.weights()
KINDS = pytest.mark.parametrize("weights", [MIXED, MIXED.shared], ids=["mixture", "dense"])


@KINDS
def test_few_rows_equal_the_reference(weights: FfnWeights):
    """Their parts add up to what the torch layer answers."""
    half = halved(noise(9, SMALL.hidden, dtype=torch.bfloat16))

    parts = ffn.rows_ffn(half, weights, living(9))

    wanted = feed_forward(whole(half).bfloat16(), weights, BlockPass(0, 9))
    assert distance(parts.sum(0), wanted) < 0.02


@KINDS
def test_a_block_equals_the_reference(weights: FfnWeights):
    """The same of rows that are normed already."""
    x = noise(90, SMALL.hidden, dtype=torch.bfloat16)

    parts = ffn.block_ffn(x, weights, living(90))

    assert distance(parts.float().sum(0), feed_forward(x, weights, BlockPass(0, 90))) < 0.02
