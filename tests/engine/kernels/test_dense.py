"""Packed weights made plain."""

import pytest
import torch

from tests.engine.kernels.compare import CUDA
from tests.engine.kernels.packs import FORMS, RAGGED, Make

from flashrt.engine.kernels.dense import dense  # isort: skip

pytestmark = pytest.mark.gpu

CASES = [
    *((make, 200, 1408) for make in FORMS.values()),
    *((make, 33, 240) for make in RAGGED.values()),
]


@pytest.mark.parametrize(("make", "n", "k"), CASES)
def test_numbers_have_the_bits_of_the_reference(make: Make, n: int, k: int):
    """And nothing behind them is touched."""
    form = make(n, k)
    into = torch.full((n + 3, k), 7.0, dtype=torch.bfloat16, device=CUDA)

    made = dense(form, into)

    assert torch.equal(made, form.dense(torch.bfloat16))
    assert torch.all(into[n:] == 7)


def test_other_numbers_than_bfloat16_are_refused():
    """Rather than filled with something else."""
    form = FORMS["nvfp4"](16, 128)
    with pytest.raises(TypeError, match="float32"):
        dense(form, torch.empty(16, 128, device=CUDA))
