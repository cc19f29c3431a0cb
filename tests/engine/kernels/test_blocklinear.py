"""Products of blocks with packed weights."""

import pytest
import torch
from torch import Tensor

from flashrt.engine import ops
from flashrt.engine.matrix import Packed
from tests.engine.kernels.compare import BITS, CUDA, distance, noise
from tests.engine.kernels.packs import EXACT, FORMS, RAGGED, ROUNDED, limit_of

from flashrt.engine.kernels import blocklinear  # isort: skip
from flashrt.engine.kernels.plain import multiplied  # isort: skip
from flashrt.engine.kernels.tiles import FUSED_ROWS  # isort: skip

pytestmark = pytest.mark.gpu
CLOSE = BITS[torch.bfloat16]
ROWS = [1, 32, 100, 512, FUSED_ROWS + 1]


def wanted(x: Tensor, *parts: object) -> Tensor:
    """The product with the same dense weights in float64."""
    rows = [p if isinstance(p, Tensor) else p.dense(torch.float32) for p in parts]
    return x.double() @ torch.cat([part.double() for part in rows]).T


@pytest.mark.parametrize("rows", ROWS)
@pytest.mark.parametrize("name", FORMS)
def test_products_equal_those_of_the_same_dense_weights(name: str, rows: int):
    """Inside the product, and through the library, which also rounds the weights."""
    form, x = FORMS[name](400, 1280), noise(rows, 1280, dtype=torch.bfloat16)
    matrix, right = Packed((form,), torch.bfloat16), wanted(x, form)
    rounded = name in ROUNDED or rows > FUSED_ROWS

    assert distance(blocklinear.block_linear(x, matrix), right) < (1 + rounded) * CLOSE
    parts = blocklinear.block_linear_parts(x, matrix)
    limit = 2 * CLOSE if rounded else limit_of(form, rounded=CLOSE)
    assert distance(parts.float().sum(0), right) < limit
    gated = multiplied(blocklinear.block_silu_mul(x, matrix))
    assert distance(gated, ops.silu_mul(right)) < 3 * CLOSE


@pytest.mark.parametrize("rows", [5, 100])
@pytest.mark.parametrize("name", RAGGED)
def test_ragged_shapes_equal_them_too(name: str, rows: int):
    """K that no step divides, N that no tile does."""
    form, x = RAGGED[name](200, 1200), noise(rows, 1200, dtype=torch.bfloat16)

    y = blocklinear.block_linear(x, Packed((form,), torch.bfloat16))

    assert distance(y, wanted(x, form)) < 2 * CLOSE


@pytest.mark.parametrize("rows", ROWS)
def test_a_stack_of_forms_fills_its_columns(rows: int):
    """Each part its own, packed or plain."""
    x = noise(rows, 640, dtype=torch.bfloat16)
    plain = noise(96, 640, seed=3, dtype=torch.bfloat16) * 0.05
    parts = (EXACT["fp8 blocks"](400, 640), plain, EXACT["nvfp4"](130, 640))

    y = blocklinear.block_linear(x, Packed(parts, torch.bfloat16))

    assert distance(y, wanted(x, *parts)) < 2 * CLOSE


@pytest.mark.parametrize("name", ["fp8 blocks", "int4 g128", "nvfp4"])
def test_slices_that_are_made_dense_add_up_to_the_matrix(
    name: str, monkeypatch: pytest.MonkeyPatch
):
    """Wherever they are cut; no more of them lies dense than is allowed."""
    form, x = EXACT[name](1000, 640), noise(FUSED_ROWS + 1, 640, dtype=torch.bfloat16)
    matrix = Packed((form,), torch.bfloat16)
    whole = blocklinear.block_linear(x, matrix)
    allowed = 256 * 640 * 2
    monkeypatch.setattr(blocklinear, "SLICE_BYTES", allowed)
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated(CUDA)
    torch.cuda.reset_peak_memory_stats(CUDA)

    sliced = blocklinear.block_linear(x, matrix)

    assert torch.cuda.max_memory_allocated(CUDA) - before <= sliced.nbytes + allowed + 4096
    assert distance(sliced, whole) < CLOSE
