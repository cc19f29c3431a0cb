"""The norm kernels."""

import pytest
import torch

from flashrt.engine import ops
from tests.engine.kernels.compare import BITS, CUDA, distance, noise

from flashrt.engine.kernels import linear, norm  # isort: skip

pytestmark = pytest.mark.gpu
DTYPES = pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32], ids=str)


@DTYPES
@pytest.mark.parametrize("count", [0, 1, 3])
@pytest.mark.parametrize("width", [96, 128, 5120])
def test_sum_and_norm_equal_the_reference(width: int, count: int, dtype: torch.dtype):
    """x + the parts, rounded once, and its norm."""
    x = noise(5, width, dtype=dtype)
    parts = noise(count, 5, width, seed=1) if count else None
    scale = noise(width, seed=2) + 1
    wanted = x if parts is None else (x.float() + parts.sum(0)).to(dtype)

    got = norm.add_norm(x, parts, scale, 1e-6)

    assert distance(x, wanted) < BITS[dtype]
    assert distance(got, ops.rms_norm(x, scale, 1e-6)) < BITS[dtype]


def test_a_rows_norm_does_not_depend_on_others():
    """Bits of each row alone and among others."""
    x, parts, scale = noise(7, 5120, dtype=torch.bfloat16), noise(3, 7, 5120), noise(5120, seed=2)
    ones = [
        norm.add_norm(x[i : i + 1].clone(), parts[:, i : i + 1].contiguous(), scale, 1e-6)
        for i in range(7)
    ]

    assert torch.equal(norm.add_norm(x.clone(), parts, scale, 1e-6), torch.cat(ones))


@DTYPES
@pytest.mark.parametrize("count", [0, 3])
@pytest.mark.parametrize("width", [96, 5120])
def test_half_a_norm_and_a_product_are_a_norm_and_a_product(
    width: int, count: int, dtype: torch.dtype
):
    """The product divides by the rms; the sum is stored as by the whole norm."""
    x, scale = noise(5, width, dtype=dtype) * 30, noise(width, seed=2) + 1
    parts = noise(count, 5, width, seed=1) if count else None
    weight = noise(192, width, seed=3, dtype=dtype) * 0.05
    whole = x.clone()
    y = norm.add_norm(whole, parts, scale, 1e-6)

    half = norm.add_half_norm(x, parts, scale, 1e-6)

    assert torch.equal(x, whole)
    for product in (linear.rows_linear, linear.rows_silu_mul, linear.head_linear):
        assert distance(product(half, weight), product(y, weight)) < 2 * BITS[dtype]


def test_a_rows_half_norm_does_not_depend_on_others():
    """Bits of each row alone and among others, through the product."""
    x, parts = noise(40, 5120, dtype=torch.bfloat16), noise(3, 40, 5120)
    scale, weight = noise(5120, seed=2), noise(192, 5120, seed=3, dtype=torch.bfloat16)

    def product(rows: slice) -> torch.Tensor:
        half = norm.add_half_norm(x[rows].clone(), parts[:, rows].contiguous(), scale, 1e-6)
        return linear.rows_linear(half, weight)

    together = product(slice(None))
    for i in (0, 1, 15, 16, 39):
        assert torch.equal(product(slice(i, i + 1))[0], together[i])


@DTYPES
def test_gated_norm_equals_the_reference(dtype: torch.dtype):
    """With gates that lie inside wider rows."""
    o, weight = noise(5, 48, 128), noise(128, seed=1)
    z = noise(5, 16480, seed=2, dtype=dtype)[:, 10240:16384].unflatten(1, (48, 128))

    got = norm.gated_norm(o, z, weight, 1e-6)

    assert distance(got, ops.gated_norm(o, z, weight, 1e-6).flatten(1)) < BITS[dtype]


def test_rows_are_kept_at_their_position_in_the_ring():
    """Around its end too; dead rows are not kept, and nothing else is touched."""
    ring, rows = torch.zeros(192, 1300, device=CUDA), noise(5, 1300)

    at = torch.tensor([190 + 192, 0, 4], dtype=torch.int32, device=CUDA)
    norm.store_in_ring(ring, at, rows)

    assert torch.equal(ring[[190, 191, 0, 1]], rows[:4])
    assert not ring[2:190].any()
