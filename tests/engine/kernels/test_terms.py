"""Rows as sums of two numbers of 8 bits."""

import pytest
import torch
from torch import Tensor

from flashrt.engine.forms import BLOCK
from tests.engine.kernels.compare import CUDA, noise

from flashrt.engine.kernels import norm  # isort: skip
from flashrt.engine.kernels.terms import Terms  # isort: skip

pytestmark = pytest.mark.gpu


def together(terms: Terms, rows: int) -> Tensor:
    """What the terms mean [M, K], in float64."""
    scales = terms.scales[0, :, :rows].T.repeat_interleave(BLOCK, dim=1)
    return (terms.numbers[0].double() + terms.numbers[1].double()) * scales.double()


@pytest.mark.parametrize("shape", [(1, 128), (5, 300), (64, 5120), (200, 6144)], ids=str)
def test_terms_are_their_row(shape: tuple[int, int]):
    """Within 2^-17 of the largest number of a block; sums are those of its numbers."""
    x = noise(*shape, dtype=torch.bfloat16)
    x[0, :9] *= 1000
    x[-1, 100:] *= 1e-6

    terms = Terms.of(x)

    padded = torch.nn.functional.pad(x.double(), (0, -shape[1] % BLOCK))
    blocks = padded.view(shape[0], -1, BLOCK)
    top = blocks.abs().amax(-1).repeat_interleave(BLOCK, dim=1)
    assert bool(((together(terms, shape[0]) - padded).abs() <= top * 2.0**-17).all())
    sums = terms.scales[1, :, : shape[0]].T.double()
    assert bool(((sums - blocks.sum(-1)).abs() <= blocks.abs().sum(-1) * 1e-6 + 1e-30).all())


def test_rows_of_zeros_have_terms_of_zero():
    """Nothing is divided by them."""
    terms = Terms.of(torch.zeros(3, 256, dtype=torch.bfloat16, device=CUDA))

    assert not terms.numbers.view(torch.uint8).any()
    assert bool(terms.scales[:, :, :3].isfinite().all())


def test_what_is_not_finite_stays_so():
    """A broken row is seen, not made a number."""
    x = noise(2, 256, dtype=torch.bfloat16)
    x[1, 7] = torch.nan

    terms = Terms.of(x)

    assert bool(together(terms, 2)[1].isnan().any())
    assert bool(together(terms, 2)[0].isfinite().all())


@pytest.mark.parametrize("rows", [1, 17])
def test_norms_make_the_terms_of_their_results(rows: int):
    """With the bits that they have when made alone; sums within rounding."""
    x, parts = noise(rows, 5120, dtype=torch.bfloat16), noise(3, rows, 5120)
    scale = torch.rand(5120, device=CUDA) + 0.5
    half = norm.add_half_norm(x, parts, scale, 1e-6, split=True)
    o, z = noise(rows, 48, 128), noise(rows, 48, 128, seed=2, dtype=torch.bfloat16)
    gated = norm.split_gated_norm(o, z, scale[:128].contiguous(), 1e-6)

    whole = norm.add_split_norm(x, None, scale, 1e-6)

    of_each = ((half.terms, half.rows), (gated.terms, gated.rows), (whole.terms, whole.rows))
    for made, of in of_each:
        assert made is not None
        alone = Terms.of(of)
        assert torch.equal(made.numbers.view(torch.uint8), alone.numbers.view(torch.uint8))
        assert torch.equal(made.scales[0, :, :rows], alone.scales[0, :, :rows])
        assert torch.allclose(made.scales[1, :, :rows], alone.scales[1, :, :rows], atol=1e-4)
