"""Packed weights in registers, seen through products with rows that are 1 at one place."""

import pytest
import torch
from torch import Tensor

from flashrt.engine.matrix import Packed
from tests.engine.kernels.compare import CUDA
from tests.engine.kernels.packs import EXACT, FORMS, ROUNDED

from flashrt.engine.kernels import linear  # isort: skip

pytestmark = pytest.mark.gpu
N, K = 200, 256


def seen(matrix: Packed) -> Tensor:
    """[N, K] float32: what a product multiplies each column with."""
    ones = torch.eye(matrix.shape[1], dtype=torch.bfloat16, device=CUDA)
    rows = [linear.head_linear(part.contiguous(), matrix) for part in ones.split(64)]
    return torch.cat(rows).T


@pytest.mark.parametrize("name", EXACT)
def test_every_weight_is_what_its_form_means(name: str):
    """Bit for bit in float32: all bytes and nibbles, smallest numbers, zeros and signs."""
    form = EXACT[name](N, K)

    assert torch.equal(seen(Packed((form,), torch.bfloat16)), form.dense(torch.float32))


@pytest.mark.parametrize("name", ROUNDED)
def test_weights_of_short_groups_are_rounded_once(name: str):
    """Each is the bfloat16 number next to what it means."""
    form = FORMS[name](N, K)

    assert torch.equal(seen(Packed((form,), torch.bfloat16)), form.dense(torch.bfloat16).float())
