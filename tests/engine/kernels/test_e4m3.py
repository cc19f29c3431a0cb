"""Products on the matrix unit of 8 bits; tests/engine/kernels/test_packed.py has what all forms
share."""

import pytest
import torch

from flashrt.engine.forms import INT4, FormSpec, Int4
from flashrt.engine.matrix import Packed
from tests.engine.kernels.compare import CUDA, distance, noise
from tests.engine.kernels.packs import fp8_blocks, int4

from flashrt.engine.kernels import e4m3, linear, norm  # isort: skip

pytestmark = pytest.mark.gpu


def test_it_takes_what_lies_as_its_unit_needs_it():
    """FP8, and int4 where it lies wide."""
    assert e4m3.takes(fp8_blocks(64, 96))
    assert e4m3.takes(int4(64, 512, 128))
    assert not e4m3.takes(int4(64, 384, 128))
    assert not e4m3.takes(int4(64, 512, 64))
    assert not e4m3.takes(Int4.empty(FormSpec(INT4, 128, torch.float32), 64, 512, CUDA))


@pytest.mark.parametrize("outlier", [1.0, 100.0, 10000.0])
def test_an_outlier_costs_no_more_than_its_own_digits(outlier: float):
    """Where one number of a row is far above the others, the sum is as exact beside it."""
    form, x = fp8_blocks(400, 1024), noise(4, 1024, dtype=torch.bfloat16)
    x[:, 7] *= outlier
    wanted = x.double() @ form.dense(torch.float32).double().T

    assert distance(linear.head_linear(x, Packed((form,), torch.bfloat16)), wanted) < 1e-3


def test_terms_made_before_change_no_bit():
    """By the norm, or by the product itself."""
    form = Packed((fp8_blocks(384, 512),), torch.bfloat16)
    x, scale = noise(5, 512, dtype=torch.bfloat16), torch.rand(512, device=CUDA) + 0.5

    made = linear.rows_linear(norm.add_half_norm(x, None, scale, 1e-6, split=True), form)

    assert torch.equal(linear.rows_linear(norm.add_half_norm(x, None, scale, 1e-6), form), made)
