"""The product kernels of few rows."""

import pytest
import torch
from torch import Tensor

from flashrt.engine import linear as reference
from flashrt.engine import ops
from tests.engine.kernels.compare import BITS, distance, noise

from flashrt.engine.kernels import linear  # isort: skip

pytestmark = pytest.mark.gpu

SHAPES = [(16480, 5120), (5120, 6144), (14336, 5120), (34816, 5120), (5120, 17408), (248320, 5120)]
ODD = [(96, 128), (100, 96), (33, 80)]
COUNTS = [1, 2, 3, 5, 7, 8, 9, 15, 16, 17, 31, 32, 33, 47, 48, 63, 64]

PRODUCTS = {
    "rows": linear.rows_linear,
    "parts": linear.rows_linear_parts,
    "gated": linear.rows_silu_mul,
    "head": linear.head_linear,
}


def weights(n: int, k: int, dtype: torch.dtype = torch.bfloat16) -> Tensor:
    return noise(n, k, seed=1, dtype=dtype) * 0.05


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32], ids=str)
@pytest.mark.parametrize("rows", [1, 9, 40])
@pytest.mark.parametrize("shape", [*ODD, (5120, 6144), (14336, 5120)], ids=str)
def test_products_equal_the_reference(shape: tuple[int, int], rows: int, dtype: torch.dtype):
    """Each within its one rounding of the float64 product; parts add up to it."""
    w = weights(*shape, dtype)
    x = noise(rows, shape[1], dtype=dtype)
    wanted = x.double() @ w.double().T

    assert distance(linear.rows_linear(x, w), wanted) < BITS[dtype]
    assert distance(linear.rows_linear(x, w), reference.rows_linear(x, w)) < 2 * BITS[dtype]
    assert distance(linear.head_linear(x, w), wanted) < 2e-5
    assert distance(linear.rows_linear_parts(x, w).sum(0), wanted) < 2e-5


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32], ids=str)
@pytest.mark.parametrize("shape", [(192, 128), (200, 96), (34816, 5120)], ids=str)
def test_gated_product_equals_the_reference(shape: tuple[int, int], dtype: torch.dtype):
    """silu(gate) * up of a matrix whose gate rows come first."""
    w = weights(*shape, dtype)
    x = noise(11, shape[1], dtype=dtype)

    got = linear.rows_silu_mul(x, w)

    assert distance(got, ops.silu_mul(x.double() @ w.double().T)) < BITS[dtype]


@pytest.mark.parametrize("product", sorted(PRODUCTS))
@pytest.mark.parametrize("shape", [*SHAPES[:5], *ODD[:2]], ids=str)
def test_a_rows_bits_are_its_own(shape: tuple[int, int], product: str):
    """For every number of rows, at every index, and whatever the other rows are."""
    w = weights(*shape)
    x = noise(64, shape[1], dtype=torch.bfloat16)
    call = PRODUCTS[product]
    alone = torch.cat([call(x[i : i + 1], w) for i in range(64)], dim=-2)

    for count in COUNTS:
        assert torch.equal(call(x[:count], w), alone[..., :count, :])
    for count in (4, 16, 64):
        order = torch.randperm(64, generator=torch.Generator().manual_seed(count))[:count]
        assert torch.equal(call(x[order.tolist()], w), alone[..., order.tolist(), :])


def test_the_heads_bits_are_each_rows_own():
    """The same for the largest matrix, with fewer counts."""
    w = weights(248320, 5120)
    x = noise(16, 5120, dtype=torch.bfloat16)
    alone = torch.cat([linear.head_linear(x[i : i + 1], w) for i in range(16)])

    for count in (2, 8, 9, 16):
        assert torch.equal(linear.head_linear(x[:count], w), alone[:count])


def test_rows_that_do_not_fit_are_refused():
    """More rows than the family has are an error, never cut off."""
    with pytest.raises(ValueError, match="64"):
        linear.rows_linear(noise(65, 128, dtype=torch.bfloat16), weights(96, 128))
