"""Quantizers written for the tests: from a matrix to the tensors of one spelling, and to the
numbers that they mean. They share no code with what reads them."""

from collections.abc import Callable

import attrs
import numpy as np
import torch
from torch import Tensor

AWQ_ORDER = (0, 2, 4, 6, 1, 3, 5, 7)


@attrs.frozen(eq=False)
class Pack:
    """What a quantizer makes of one matrix [N, K]."""

    tensors: dict[str, Tensor]
    """By the end of their names."""
    dense: Tensor
    """[N, K] float32: what they mean."""


Packer = Callable[[Tensor], Pack]


# -- FP8 -------------------------------------------------------------------------------------------


def fp8_blocks(
    weight: Tensor,
    *,
    ending: str = "weight_scale_inv",
    dtype: torch.dtype = torch.bfloat16,
    of_four: bool = False,
) -> Pack:
    """A scale for each 128 x 128 numbers. `of_four`: with two dims of 1 between."""
    n, k = weight.shape
    scale = torch.empty(-(-n // 128), -(-k // 128))
    numbers, dense = torch.empty(n, k).to(torch.float8_e4m3fn), torch.empty(n, k)
    for i, row in enumerate(range(0, n, 128)):
        for j, column in enumerate(range(0, k, 128)):
            at = slice(row, row + 128), slice(column, column + 128)
            scale[i, j] = (weight[at].abs().max() / 448).to(dtype).float()
            numbers[at] = (weight[at] / scale[i, j]).clamp(-448, 448).to(numbers.dtype)
            dense[at] = numbers[at].float() * scale[i, j]
    stored = scale.to(dtype)[:, None, :, None] if of_four else scale.to(dtype)
    return Pack({"weight": numbers, ending: stored}, dense)


def fp8_rows(weight: Tensor, *, flat: bool = False, dtype: torch.dtype = torch.bfloat16) -> Pack:
    """A scale for each row, as [N, 1] or [N]."""
    scale = (weight.abs().amax(1, keepdim=True) / 448).to(dtype)
    numbers = (weight / scale.float()).clamp(-448, 448).to(torch.float8_e4m3fn)
    stored = scale[:, 0] if flat else scale
    return Pack({"weight": numbers, "weight_scale": stored}, numbers.float() * scale.float())


def fp8_tensor(weight: Tensor, *, dims: int = 0) -> Pack:
    """One scale, and one of activations that nobody reads."""
    scale = weight.abs().max() / 448
    numbers = (weight / scale).clamp(-448, 448).to(torch.float8_e4m3fn)
    stored = {"weight": numbers, "weight_scale": scale.reshape((1,) * dims)}
    return Pack({**stored, "input_scale": torch.tensor(0.5)}, numbers.float() * scale)


# -- int4 ------------------------------------------------------------------------------------------


def _grouped(
    weight: Tensor, group: int, symmetric: bool, dtype: torch.dtype
) -> tuple[np.ndarray, np.ndarray, Tensor, Tensor]:
    """Numbers 0..15 [N, K], zeros and scales [N, K / group], and what they mean."""
    n, k = weight.shape
    parts = weight.reshape(n, k // group, group)
    if symmetric:
        scale = parts.abs().amax(2) / 7.5
        zero = torch.full_like(scale, 8)
    else:
        scale = (parts.amax(2) - parts.amin(2)).clamp(min=1e-4) / 15
        zero = (-parts.amin(2) / scale).round().clamp(1, 15)
    scale = scale.to(dtype)
    wide = scale.float()[..., None]
    numbers = (parts / wide + zero[..., None]).round().clamp(0, 15)
    dense = ((numbers - zero[..., None]) * wide).reshape(n, k)
    return numbers.reshape(n, k).numpy().astype(np.uint32), zero.numpy(), scale, dense


def _words(numbers: np.ndarray, order: tuple[int, ...] = tuple(range(8))) -> Tensor:
    """[R, C] -> [R, C / 8]: eight neighbours a word; nibble i holds the one that order names."""
    rows, columns = numbers.shape
    padded = np.zeros((rows, -(-columns // 8) * 8), np.uint32)
    padded[:, :columns] = numbers
    total = np.zeros((rows, padded.shape[1] // 8), np.uint32)
    for nibble, place in enumerate(order):
        total |= padded[:, place::8] << np.uint32(4 * nibble)
    return torch.from_numpy(total.view(np.int32).copy())


def int4_packed(
    weight: Tensor,
    *,
    group: int = 32,
    symmetric: bool = True,
    dtype: torch.dtype = torch.bfloat16,
    ordered: bool = False,
) -> Pack:
    """As compressed-tensors writes it. group 0: a whole row."""
    numbers, zero, scale, dense = _grouped(weight, group or weight.shape[1], symmetric, dtype)
    tensors = {
        "weight_packed": _words(numbers),
        "weight_scale": scale,
        "weight_shape": torch.tensor(weight.shape),
    }
    if not symmetric:
        tensors["weight_zero_point"] = _words(zero.T.astype(np.uint32)).T.contiguous()
    if ordered:
        tensors["weight_g_idx"] = torch.arange(weight.shape[1]) // group
    return Pack(tensors, dense)


def int4_gptq(weight: Tensor, *, group: int = 32, symmetric: bool = False, offset: int = 1) -> Pack:
    """As GPTQ writes it; `offset`: how much less than it means a stored zero is."""
    numbers, zero, scale, dense = _grouped(weight, group, symmetric, torch.float16)
    tensors = {
        "qweight": _words(numbers).T.contiguous(),
        "qzeros": _words(zero.T.astype(np.uint32) - np.uint32(offset)),
        "scales": scale.T.contiguous(),
        "g_idx": (torch.arange(weight.shape[1]) // group).int(),
    }
    return Pack(tensors, dense)


def int4_awq(weight: Tensor, *, group: int = 32) -> Pack:
    """As AutoAWQ writes it."""
    numbers, zero, scale, dense = _grouped(weight, group, False, torch.float16)
    tensors = {
        "qweight": _words(np.ascontiguousarray(numbers.T), AWQ_ORDER),
        "qzeros": _words(zero.T.astype(np.uint32), AWQ_ORDER),
        "scales": scale.T.contiguous(),
    }
    return Pack(tensors, dense)


# -- NVFP4 -----------------------------------------------------------------------------------------


def _fp4(weight: Tensor, even: bool = False) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Bytes [N, K / 2], scales [N, K / 16], the whole's multiplier, and what they mean.
    `even`: the multiplier is a power of two, so that one over it is exact."""
    values = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6])
    n, k = weight.shape
    parts = weight.reshape(n, k // 16, 16)
    whole = weight.abs().max() / (6 * 448)
    whole = 2.0 ** whole.log2().ceil() if even else whole
    scale = (parts.abs().amax(2) / 6 / whole).clamp(2**-6, 448).to(torch.float8_e4m3fn)
    step = scale.float()[..., None] * whole
    level = ((parts / step).abs()[..., None] - values).abs().argmin(-1)
    code = (level + 8 * (parts < 0)).reshape(n, k).to(torch.uint8)
    exact = torch.where(parts < 0, -values[level], values[level]) * scale.float()[..., None]
    return code[:, 0::2] | code[:, 1::2] << 4, scale, whole, (exact * whole).reshape(n, k)


def nvfp4_divisor(weight: Tensor, *, even: bool = False) -> Pack:
    """As compressed-tensors writes it: numbers are divided by the whole's scale."""
    packed, scale, whole, dense = _fp4(weight, even)
    tensors = {
        "weight_packed": packed,
        "weight_scale": scale,
        "weight_global_scale": (1 / whole).reshape(1),
        "input_global_scale": torch.tensor([2.0]),
    }
    return Pack(tensors, dense)


def nvfp4_multiplier(weight: Tensor) -> Pack:
    """As ModelOpt writes it."""
    packed, scale, whole, dense = _fp4(weight)
    tensors = {"weight": packed, "weight_scale": scale, "weight_scale_2": whole.reshape(())}
    return Pack({**tensors, "input_scale": torch.tensor(2.0)}, dense)


def plain(weight: Tensor) -> Pack:
    """As it is, in bfloat16."""
    stored = weight.bfloat16()
    return Pack({"weight": stored}, stored.float())


PACKERS: dict[str, Packer] = {
    "plain": plain,
    "fp8 blocks": fp8_blocks,
    "fp8 blocks, float32 scales": lambda w: fp8_blocks(w, dtype=torch.float32),
    "fp8 blocks of compressed-tensors": lambda w: fp8_blocks(w, ending="weight_scale"),
    "fp8 blocks of ModelOpt": lambda w: fp8_blocks(
        w, ending="weight_scale", dtype=torch.float32, of_four=True
    ),
    "fp8 rows": fp8_rows,
    "fp8 rows, flat": lambda w: fp8_rows(w, flat=True, dtype=torch.float32),
    "fp8 tensor": fp8_tensor,
    "fp8 tensor of compressed-tensors": lambda w: fp8_tensor(w, dims=1),
    "int4 packed": int4_packed,
    "int4 packed with zeros": lambda w: int4_packed(w, symmetric=False, dtype=torch.float16),
    "int4 packed, a scale a row": lambda w: int4_packed(w, group=0, dtype=torch.float32),
    "int4 packed, ordered": lambda w: int4_packed(w, group=16, ordered=True),
    "int4 GPTQ": int4_gptq,
    "int4 GPTQ, symmetric": lambda w: int4_gptq(w, symmetric=True),
    "int4 AWQ": int4_awq,
    "nvfp4, divided": nvfp4_divisor,
    "nvfp4, divided by a power of two": lambda w: nvfp4_divisor(w, even=True),
    "nvfp4, multiplied": nvfp4_multiplier,
}
EIGHTS = tuple(name for name in PACKERS if "GPTQ" in name or "AWQ" in name)
"""What packs rows by eights."""


def fits(name: str, n: int, k: int) -> bool:
    """Whether a packer can write a matrix [n, k]."""
    if name == "plain" or name.startswith("fp8"):
        return True
    return k % 32 == 0 and (name not in EIGHTS or n % 8 == 0)
