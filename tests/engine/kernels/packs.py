"""Packed matrices of random bits on the device."""

from collections.abc import Callable

import torch
from torch import Tensor

from flashrt.engine.forms import (
    BLOCK,
    INT4,
    NIBBLES,
    Form,
    FormSpec,
    Fp8Blocks,
    Fp8Rows,
    Int4,
    Nvfp4,
)
from tests.engine.kernels.compare import CUDA

Make = Callable[[int, int], Form]


def _draw(n: int, k: int) -> torch.Generator:
    return torch.Generator(device=CUDA).manual_seed(n * 31 + k)


def _scales(draw: torch.Generator, *shape: int) -> Tensor:
    return torch.rand(shape, generator=draw, device=CUDA) * 0.04 + 0.01


def _e4m3(draw: torch.Generator, *shape: int) -> Tensor:
    """Any finite numbers, also the smallest."""
    bits = torch.randint(256, shape, generator=draw, device=CUDA, dtype=torch.uint8)
    return torch.where(bits & 127 == 127, 0, bits).view(torch.float8_e4m3fn)


def _words(draw: torch.Generator, n: int, k: int) -> Tensor:
    shape = n, k // NIBBLES
    numbers = torch.randint(-(2**31), 2**31, shape, generator=draw, device=CUDA)
    return numbers.to(torch.int32)


def fp8_blocks(n: int, k: int, first: int = 0) -> Fp8Blocks:
    """`first`: rows of its first block that belong to another matrix."""
    draw = _draw(n, k)
    scale = _scales(draw, -(-(first + n) // BLOCK), -(-k // BLOCK))
    return Fp8Blocks(_e4m3(draw, n, k), scale, first)


def fp8_rows(n: int, k: int) -> Fp8Rows:
    """A scale a row."""
    draw = _draw(n, k)
    return Fp8Rows(_e4m3(draw, n, k), _scales(draw, n))


def int4(n: int, k: int, group: int, dtype: torch.dtype = torch.bfloat16) -> Int4:
    """Zeros from 0 to 16; wide where its shape allows."""
    draw, spec = _draw(n, k), FormSpec(INT4, group, dtype)
    form = Int4.empty(spec, n, k, CUDA)
    form.place(torch.randint(16, (n, k), generator=draw, device=CUDA, dtype=torch.uint8), 0)
    form.scale.copy_(_scales(draw, n, k // group))
    form.zero.copy_(torch.randint(17, (n, k // group), generator=draw, device=CUDA))
    return form


def nvfp4(n: int, k: int) -> Nvfp4:
    """Scales of either sign."""
    draw = _draw(n, k)
    return Nvfp4(_words(draw, n, k), _e4m3(draw, n, k // 16), _scales(draw, n))


EXACT: dict[str, Make] = {
    "fp8 blocks": fp8_blocks,
    "fp8 blocks, from the middle of one": lambda n, k: fp8_blocks(n, k, 100),
    "fp8 rows": fp8_rows,
    "int4 g128": lambda n, k: int4(n, k, 128),
    "int4 g64, float16 scales": lambda n, k: int4(n, k, 64, torch.float16),
    "int4, one group": lambda n, k: int4(n, k, k),
    "nvfp4": nvfp4,
}
"""Those whose weights reach the matrix unit unrounded; K is a multiple of 128."""

ROUNDED: dict[str, Make] = {
    "int4 g32": lambda n, k: int4(n, k, 32),
    "int4 g16": lambda n, k: int4(n, k, 16),
}
"""Those whose weights are rounded to bfloat16 once."""

FORMS = EXACT | ROUNDED

SUMS = 2e-5
"""How far float32 sums of thousands may be from those of float64."""

E4M3_SUMS = 1e-3
"""The same of the matrix unit of 8 bits, which keeps 14 digits of 128 products' sum."""


def limit_of(form: Form, *, rounded: float) -> float:
    """How far a product with it may be from that of its dense weights in float64. `rounded`: what
    rounding each weight costs."""
    if isinstance(form, Fp8Blocks | Fp8Rows) or (isinstance(form, Int4) and form.pairs is not None):
        return E4M3_SUMS
    group = form.columns // form.scale.shape[1] if isinstance(form, Int4) else 0
    return rounded if 0 < group < 64 or group % 64 else SUMS


RAGGED: dict[str, Make] = {
    **{name: FORMS[name] for name in ("fp8 blocks", "fp8 rows", "nvfp4", "int4 g16")},
    "int4 g48": lambda n, k: int4(n, k, 48),
}
"""Those that take any multiple of 16 for K; g48 a multiple of 48."""
