"""What a state belongs to: whatever could change its meaning or its bits is in one digest."""

import hashlib
import inspect

import torch

from flashrt.engine import (
    attention,
    buffers,
    delta,
    ffn,
    forms,
    kernels,
    kvcache,
    linear,
    live,
    matrix,
    mixers,
    model,
    mtp,
    ops,
    passes,
    repack,
)
from flashrt.engine.config import ModelConfig
from flashrt.engine.weights import ModelWeights

CODE = (
    *(attention, buffers, delta, ffn, forms, linear, live, matrix, mixers, model, mtp, ops, passes),
    *(kvcache, repack),
)
"""The modules that the bits of a state come from."""


def identity_of(
    config: ModelConfig, weights: ModelWeights, kv_dtype: torch.dtype | None = None
) -> str:
    """A digest of weights, config, dtypes, device kind, threads, torch and our own code.

    `kv_dtype`: of K and V, if not the weights' own."""
    device, dtype = weights.embed.device, weights.embed.dtype
    kept = kv_dtype or dtype
    facts = (weights.checksum, config, dtype, kept, _device_kind(device), torch.__version__)
    digest = hashlib.blake2b(repr(facts).encode(), digest_size=16)
    for module in CODE:
        digest.update(inspect.getsource(module).encode())
    return digest.hexdigest()


def _device_kind(device: torch.device) -> str:
    """What decides which kernels run, and how they split a sum."""
    if device.type == "cuda":
        return f"{torch.cuda.get_device_name(device)}, {kernels.fingerprint(device)}"
    return f"{device.type} {torch.backends.cpu.get_cpu_capability()} {torch.get_num_threads()}"
