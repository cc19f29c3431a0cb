"""Where a model runs and in which number format, from the words that people use."""

import os
from pathlib import Path

import attrs
import torch

from flashrt.engine import quota
from flashrt.engine.kvcache import KV_DTYPES, check_served
from flashrt.errors import CannotServe

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}

BLOCK_TOKENS, CUDA_BLOCK_TOKENS = 1024, 2048
"""Tokens of a prompt that are read at a time, where a user says nothing: on a large GPU products of
2,048 rows are the quickest, and still only a tenth of a second."""


@attrs.frozen
class Placement:
    """A device of this machine, the dtype of the weights on it, and that of keys and values."""

    device: torch.device
    dtype: torch.dtype
    kv_dtype: torch.dtype = attrs.field()

    @kv_dtype.default
    def _own(self) -> torch.dtype:
        return self.dtype

    @classmethod
    def of(cls, device: str, dtype: str, kv_cache_dtype: str = "auto") -> "Placement":
        """`auto` device: CUDA where there is one. `auto` dtype: bfloat16 there, float32 on a CPU.
        `auto` keys and values: the dtype.

        Raises CannotServe for a device that this machine does not have, or that cannot keep such
        keys and values.
        """
        has_cuda = torch.cuda.is_available()
        if device == "auto":
            device = "cuda" if has_cuda else "cpu"
        if device.startswith("cuda") and not has_cuda:
            raise CannotServe(
                f"--device {device}: torch {torch.__version__} finds no CUDA device here; "
                "use --device cpu"
            )
        placement = cls.supposed(device, dtype, kv_cache_dtype)
        check_served(placement.kv_dtype, placement.device)
        return placement

    @classmethod
    def supposed(cls, device: str, dtype: str, kv_cache_dtype: str = "auto") -> "Placement":
        """The same for a device that may be another machine's; `auto` is a GPU."""
        if device == "auto":
            device = "cuda"
        if dtype == "auto":
            dtype = "float32" if device == "cpu" else "bfloat16"
        weights = DTYPES[dtype]
        return cls(torch.device(device), weights, KV_DTYPES[kv_cache_dtype] or weights)


def block_tokens(device: str, wish: int) -> int:
    """Tokens of a prompt that are read at a time: the wish, or for 0 what suits the device."""
    return wish or (CUDA_BLOCK_TOKENS if device.startswith("cuda") else BLOCK_TOKENS)


def is_out_of_memory(error: Exception) -> bool:
    """Whether an allocation failed, on a GPU or here, where PyTorch has no type for it."""
    lacks = isinstance(error, MemoryError | torch.OutOfMemoryError)
    return lacks or "can't allocate memory" in str(error)


def free_bytes(device: str) -> int:
    """Memory of a device that nobody uses now; of a CPU's what the system can give away, and lets
    this process have."""
    if device.startswith("cuda"):
        return int(torch.cuda.mem_get_info(torch.device(device))[0])
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
        kib = next(line.split()[1] for line in lines if line.startswith("MemAvailable:"))
        free = int(kib) << 10
    except (OSError, StopIteration):
        free = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    left = quota.left_bytes()
    return free if left is None else min(free, left)
