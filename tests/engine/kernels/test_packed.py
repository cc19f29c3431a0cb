"""The product of few rows with packed weights."""

import pytest
import torch
from torch import Tensor

from flashrt.engine import ops
from flashrt.engine.forms import Fp8Blocks
from flashrt.engine.matrix import Packed
from tests.engine.kernels.compare import BITS, CUDA, distance, noise
from tests.engine.kernels.packs import EXACT, FORMS, RAGGED, fp8_blocks, int4, limit_of

from flashrt.engine.kernels import e4m3, linear, norm  # isort: skip

pytestmark = pytest.mark.gpu

CLOSE = BITS[torch.bfloat16]
COUNTS = [1, 2, 3, 5, 8, 9, 15, 16, 17, 31, 32, 33, 48, 49, 64]
PRODUCTS = {
    "rows": linear.rows_linear,
    "parts": linear.rows_linear_parts,
    "gated": linear.rows_silu_mul,
    "head": linear.head_linear,
}
LARGE = [(16384, 5120), (5120, 6144), (14336, 5120), (34816, 5120), (5120, 17408)]


def matrix(*parts: object) -> Packed:
    return Packed(parts, torch.bfloat16)


def wanted(x: Tensor, *parts: object) -> Tensor:
    """The product with the same dense weights in float64."""
    rows = [p if isinstance(p, Tensor) else p.dense(torch.float32) for p in parts]
    return x.double() @ torch.cat([part.double() for part in rows]).T


@pytest.mark.parametrize("rows", [1, 9, 40])
@pytest.mark.parametrize("shape", [(96, 128), (100, 384), (5120, 6144)], ids=str)
@pytest.mark.parametrize("name", FORMS)
def test_products_equal_those_of_the_same_dense_weights(
    name: str, shape: tuple[int, int], rows: int
):
    """Exact weights within the rounding of the sums; those of short groups within their own."""
    form, x = FORMS[name](*shape), noise(rows, shape[1], dtype=torch.bfloat16)
    right, limit = wanted(x, form), limit_of(form, rounded=CLOSE)

    assert distance(linear.head_linear(x, matrix(form)), right) < limit
    assert distance(linear.rows_linear_parts(x, matrix(form)).sum(0), right) < limit
    assert distance(linear.rows_linear(x, matrix(form)), right) < limit + CLOSE
    gated = linear.rows_silu_mul(x, matrix(form))
    assert distance(gated, ops.silu_mul(right)) < 2 * limit + CLOSE


@pytest.mark.parametrize(("n", "k"), [(33, 240), (200, 1200), (1, 48)])
@pytest.mark.parametrize("name", RAGGED)
def test_ragged_shapes_equal_them_too(name: str, n: int, k: int):
    """K that no step divides, N that no tile does."""
    form, x = RAGGED[name](n, k), noise(20, k, dtype=torch.bfloat16)
    limit = limit_of(form, rounded=CLOSE)

    assert distance(linear.head_linear(x, matrix(form)), wanted(x, form)) < limit


@pytest.mark.parametrize("product", sorted(PRODUCTS))
@pytest.mark.parametrize("shape", [(384, 512), (14336, 5120)], ids=str)
@pytest.mark.parametrize("name", FORMS)
def test_a_rows_bits_are_its_own(name: str, shape: tuple[int, int], product: str):
    """For every number of rows, at every index, and whatever the other rows are."""
    w, call = matrix(FORMS[name](*shape)), PRODUCTS[product]
    x = noise(64, shape[1], dtype=torch.bfloat16)
    alone = torch.cat([call(x[i : i + 1], w) for i in range(64)], dim=-2)

    for count in COUNTS:
        assert torch.equal(call(x[:count], w), alone[..., :count, :])
    for count in (4, 16, 64):
        order = torch.randperm(64, generator=torch.Generator().manual_seed(count))[:count]
        assert torch.equal(call(x[order.tolist()], w), alone[..., order.tolist(), :])


@pytest.mark.parametrize("shape", LARGE, ids=str)
@pytest.mark.parametrize("name", ["fp8 blocks", "int4 g128", "nvfp4"])
def test_large_matrices_equal_their_dense_weights(name: str, shape: tuple[int, int]):
    """As they are cut for a large model, also in parts."""
    form, x = EXACT[name](*shape), noise(3, shape[1], dtype=torch.bfloat16)

    parts = linear.rows_linear_parts(x, matrix(form))

    assert len(parts) == linear.tile_of(form, x).parts
    assert distance(parts.sum(0), wanted(x, form)) < limit_of(form, rounded=CLOSE)


@pytest.mark.parametrize("name", FORMS)
def test_a_half_normed_row_is_divided_behind_the_product(name: str):
    """As by a norm that was whole before."""
    form, x = FORMS[name](384, 512), noise(5, 512, dtype=torch.bfloat16) * 3
    scale = torch.rand(512, device=CUDA) + 0.5
    half = norm.add_half_norm(x, None, scale, 1e-6)
    rms = torch.rsqrt(x.double().square().mean(-1, keepdim=True) + 1e-6)

    right = wanted(half.rows, form) * rms

    assert distance(linear.head_linear(half, matrix(form)), right) < CLOSE
    assert distance(linear.rows_silu_mul(half, matrix(form)), ops.silu_mul(right)) < 3 * CLOSE


@pytest.mark.parametrize("rows", [1, 16, 17, 64])
@pytest.mark.parametrize("name", FORMS)
def test_each_part_of_a_stack_has_the_bits_that_it_has_alone(name: str, rows: int):
    """Also a small plain one, which is computed beside the packed one before it."""
    form, x = FORMS[name](320, 512), noise(rows, 512, dtype=torch.bfloat16)
    small, large = (noise(n, 512, seed=n, dtype=torch.bfloat16) * 0.05 for n in (96, 200))
    half = norm.add_half_norm(x, None, torch.rand(512, device=CUDA) + 0.5, 1e-6)
    alone = {part: linear.rows_linear(half, part) for part in (small, large)}
    packed_alone = linear.rows_linear(half, matrix(form))
    head = form.cut(0, 128)

    for parts in ((form, small), (small, form), (form, large, head), (form, small, large, small)):
        start, y = 0, linear.rows_linear(half, matrix(*parts))
        for part in parts:
            right = packed_alone[:, : len(head.weight)] if part is head else packed_alone
            right = alone[part] if isinstance(part, Tensor) else right
            assert torch.equal(y[:, start : start + right.shape[1]], right)
            start += right.shape[1]


@pytest.mark.parametrize("name", FORMS)
def test_gates_and_ups_of_two_forms_are_rounded_once(name: str):
    """By the kernel that puts them together."""
    gate, up = FORMS[name](256, 512), noise(256, 512, dtype=torch.bfloat16) * 0.05
    x = noise(5, 512, seed=2, dtype=torch.bfloat16)

    got = linear.rows_silu_mul(x, matrix(gate, up))

    assert distance(got, ops.silu_mul(wanted(x, gate, up))) < 2 * CLOSE


def test_matrices_whose_blocks_of_scales_begin_anew_are_products_apart():
    """No kernel takes them for one matrix."""
    full, x = fp8_blocks(512, 128), noise(2, 128, dtype=torch.bfloat16)
    several = Fp8Blocks(full.weight[:320], full.scale, period=160)

    with pytest.raises(ValueError, match="160"):
        e4m3.fill(x, several, torch.empty(2, 320, device=CUDA), e4m3.tile_of(several))
    for form in (several, several.cut(100, 320), several.cut(0, 160)):
        assert distance(linear.head_linear(x, matrix(form)), wanted(x, form)) < limit_of(
            form, rounded=CLOSE
        )
        gated = linear.rows_silu_mul(x, matrix(form))
        assert distance(gated, ops.silu_mul(wanted(x, form))) < 2 * CLOSE


def test_rows_of_another_dtype_are_refused():
    """Packed weights meet bfloat16."""
    with pytest.raises(TypeError, match="float32"):
        linear.rows_linear(noise(2, 128), matrix(int4(96, 128, 128)))


def test_more_rows_than_the_family_has_are_refused():
    """Never cut off."""
    with pytest.raises(ValueError, match="64"):
        linear.rows_linear(noise(65, 128, dtype=torch.bfloat16), matrix(int4(96, 128, 128)))
