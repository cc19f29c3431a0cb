"""What the kernel tests share."""

from collections.abc import Sequence

import pytest
import torch
from torch import Tensor

if not torch.cuda.is_available():
    pytest.skip("the kernels run on a CUDA device", allow_module_level=True)
pytest.importorskip("triton", reason="the kernels are written in Triton, which is not installed")

from flashrt.engine.kernels.model import BLOCKS, KernelModel

CUDA = torch.device("cuda")
BITS = {torch.float32: 2e-6, torch.bfloat16: 4e-3}
"""How far a result that is rounded once to this dtype may be from the reference, relatively."""


def distance(one: Tensor, other: Tensor) -> float:
    """|one - other| / |other|; NaN anywhere gives NaN, which no limit passes."""
    return float((one.double() - other.double()).norm() / other.double().norm())


def noise(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float32) -> Tensor:
    """Seeded normal values on the device."""
    generator = torch.Generator(device=CUDA).manual_seed(seed)
    return torch.randn(shape, generator=generator, device=CUDA).to(dtype)


def check_apart(one: KernelModel, other: KernelModel, ids: Sequence[int]) -> None:
    """A block by a graph of one model has the bits of the same pass kernel by kernel of another."""
    size = next(size for size in BLOCKS if len(ids) <= size)

    hidden = one.block(ids, 0)
    other._block_step.place(ids, 0)
    apart = other._block_step.run(size, other.bounds[0])[: len(ids)]

    assert torch.equal(hidden, apart)
    for name in ("kv", "values", "keys", "decays", "anchors", "hidden", "raw"):
        assert torch.equal(getattr(one.buffers, name), getattr(other.buffers, name)), name
