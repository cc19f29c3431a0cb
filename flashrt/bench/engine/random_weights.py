"""Random weights of a shape, made where they are used: no checkpoint file, no copy.

Seeded, so a run can be repeated; sized so that a layer's output has about the size of its input,
whatever the depth, and that the state remembers hundreds of tokens, as trained heads do.
"""

import attrs
import torch
from torch import Tensor

from flashrt.engine.config import ModelConfig
from flashrt.engine.tensor_plan import Layout, allocate
from flashrt.engine.weights import ModelWeights

PLAIN_NORM = "linear_attn.norm.weight"
"""The one norm that is no offset from 1."""

BY_NAME = {
    PLAIN_NORM: (1.0, 0.02),
    "linear_attn.A_log": (-1.0, 0.5),
    "linear_attn.dt_bias": (-4.0, 1.0),
    "linear_attn.conv1d.weight": (0.0, 0.5),
    "embed_tokens.weight": (0.0, 1.0),
}
"""By the end of a tensor's name in a checkpoint: mean and standard deviation."""

NORM = (0.0, 0.02)


@attrs.frozen(eq=False)
class NamedModel:
    """Weights, and where they are known the same memory as a checkpoint's tensors by name."""

    config: ModelConfig
    weights: ModelWeights
    tensors: dict[str, Tensor]


def random_model(
    config: ModelConfig, device: torch.device, dtype: torch.dtype, seed: int = 0
) -> NamedModel:
    """The MTP layer included, where the config has one."""
    weights, tensors = allocate(config, device, dtype, Layout(mtp=config.mtp_layers > 0))
    noise = torch.Generator(device=device).manual_seed(seed)
    for name, tensor in tensors.items():
        tensor.normal_(*_spread(name, tensor), generator=noise)
    named = attrs.evolve(weights, checksum=f"random, seed {seed}")
    return NamedModel(config, named, tensors)


def _spread(name: str, tensor: Tensor) -> tuple[float, float]:
    """Mean and standard deviation."""
    for ending, spread in BY_NAME.items():
        if name.endswith(ending):
            return spread
    if tensor.dim() == 1:
        return NORM
    return 0.0, tensor.shape[-1] ** -0.5
