"""K and V as kernels store and read them."""

import pytest
import torch
from torch import Tensor

from flashrt.engine.kvcache import FP8, stored
from flashrt.engine.selfcheck import same_bits
from tests.engine.kernels.compare import CUDA

import triton  # isort: skip
import triton.language as tl  # isort: skip

from flashrt.engine.kernels.kvstore import as_rows, as_stored  # isort: skip

pytestmark = pytest.mark.gpu


@triton.jit
def _store(X, Y, SIZE: tl.constexpr):
    i = tl.program_id(0) * SIZE + tl.arange(0, SIZE)
    tl.store(Y + i, as_stored(tl.load(X + i), Y.dtype.element_ty))


@triton.jit
def _read(X, Y, SIZE: tl.constexpr):
    i = tl.program_id(0) * SIZE + tl.arange(0, SIZE)
    tl.store(Y + i, as_rows(tl.load(X + i), Y.dtype.element_ty))


def through(kernel: object, x: Tensor, dtype: torch.dtype, size: int = 256) -> Tensor:
    """Each number by itself."""
    y = torch.empty(x.shape, dtype=dtype, device=CUDA)
    kernel[(len(x) // size,)](x, y, SIZE=size, num_warps=1)
    return y


def every_bfloat16() -> Tensor:
    """All 65,536 of them, not-a-number among them."""
    bits = torch.arange(-(1 << 15), 1 << 15, dtype=torch.int32, device=CUDA).to(torch.int16)
    return bits.view(torch.bfloat16)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32], ids=str)
def test_every_number_is_stored_as_by_the_reference(dtype: torch.dtype):
    """Beyond 448 too, and below the smallest; what is not a number stays so."""
    x = every_bfloat16().to(dtype)
    if dtype == torch.float32:  # half-way between numbers, and next to that
        near = torch.cat((x, x * (1 + 2**-12), x * (1 - 2**-12)))
        x = near[: len(near) // 256 * 256]
    number = ~torch.isnan(x)

    got, wanted = through(_store, x, FP8), stored(x, FP8)

    assert torch.equal(got.view(torch.uint8)[number], wanted.view(torch.uint8)[number])
    assert torch.isnan(got.float()[~number]).all()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32], ids=str)
@pytest.mark.parametrize("size", [32, 128, 256])
def test_every_stored_number_is_read_exactly(dtype: torch.dtype, size: int):
    """All bytes in their order, the sign of zero too; in layouts of one and of several a thread."""
    every = torch.arange(256, dtype=torch.int32, device=CUDA).to(torch.uint8).view(FP8)
    number = ~torch.isnan(every.float())

    got = through(_read, every, dtype, size)

    assert same_bits(got[number], every.to(dtype)[number])


def test_a_dtype_of_the_rows_own_is_stored_and_read_as_it_is():
    """Not a bit is touched."""
    x = every_bfloat16()
    assert same_bits(through(_read, through(_store, x, torch.bfloat16), torch.bfloat16), x)
