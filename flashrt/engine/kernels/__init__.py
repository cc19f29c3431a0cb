"""The engine's device path: own Triton kernels over the same buffers as the torch references.

Nothing here is imported where there is no CUDA device or no Triton; `model_for` decides. Every
kernel keeps the promise of the row family: a row's bits depend neither on how many rows ride along
nor on its index among them. So nothing that fixes the order of a sum (tile, split, padding) may
depend on the number of rows.
"""

import hashlib
import importlib.metadata
import importlib.util
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from flashrt.engine.buffers import Buffers
from flashrt.engine.config import ModelConfig
from flashrt.engine.matrix import sole_part
from flashrt.engine.model import Model
from flashrt.engine.narrow import COLUMNS_MAX, narrow_bytes
from flashrt.engine.weights import ModelWeights, MoeWeights

if TYPE_CHECKING:
    from flashrt.engine.mtp import MtpLayer, MtpRows


def model_for(config: ModelConfig, weights: ModelWeights, buffers: Buffers) -> Model:
    """A model that runs by kernels where they run and know its shape, else by torch.

    The buffers must be fresh; they are zeros afterwards.
    """
    runs = usable(weights.embed.device) and knows(config) and reads(weights)
    # Packed weights meet rows of bfloat16 only.
    if not runs or (weights.packed and weights.embed.dtype != torch.bfloat16):
        return Model(config, weights, buffers)
    from flashrt.engine.kernels.model import KernelModel

    return KernelModel(config, weights, buffers)


def mtp_rows_for(layer: "MtpLayer") -> "MtpRows":
    """What goes row by row through an MTP layer: by kernels where its model runs by them."""
    from flashrt.engine.mtp import TorchMtpRows

    if type(layer.model) is Model:
        return TorchMtpRows(layer)
    from flashrt.engine.kernels.mtp import KernelMtpRows

    return KernelMtpRows.of(layer)


def usable(device: torch.device) -> bool:
    """Whether this machine can run the kernels on `device`."""
    return device.type == "cuda" and importlib.util.find_spec("triton") is not None


def knows(config: ModelConfig) -> bool:
    """Whether there are kernels for every part of this shape: heads of 16, 32, 64, ..."""
    sides = (config.head_dim, config.linear_key_dim, config.linear_value_dim)
    fit = all(side >= 16 and side & (side - 1) == 0 for side in sides)
    # With fewer value columns, Triton 3.6 makes wrong code of the products with long keys.
    wide = config.linear_value_dim >= min(64, config.linear_key_dim)
    return fit and wide


def reads(weights: ModelWeights) -> bool:
    """Whether there are kernels for the forms that these matrices are in: of a mixture, one for
    all routed experts of a layer, and one for the shared expert, in either of its two products."""
    layers = [*weights.layers, *([weights.mtp.layer] if weights.mtp else [])]
    mixtures = [layer.mlp for layer in layers if isinstance(layer.mlp, MoeWeights)]
    return all(
        sole_part(matrix) is not None
        for one in mixtures
        for matrix in (one.gate_up, one.down, one.shared.gate_up, one.shared.down)
    )


def head_copy_bytes(config: ModelConfig, weights: ModelWeights, device: torch.device) -> int:
    """What the head's copy in 8 bits takes on `device`, here or elsewhere. Of `weights` only their
    forms count."""
    runs = device.type == "cuda" and knows(config) and reads(weights)
    return narrow_bytes(*weights.lm_head.shape) if runs and copies_head(weights) else 0


def copies_head(weights: ModelWeights) -> bool:
    """Whether a model that runs by kernels has its head in 8 bits beside it: a plain one, which
    ids are found by (`besthead`) if it is bfloat16, and drafts chosen by if there is an MTP layer.
    """
    head = weights.lm_head
    if not isinstance(head, torch.Tensor) or head.shape[1] > COLUMNS_MAX:
        return False
    return finds_best(weights) or weights.mtp is not None


def finds_best(weights: ModelWeights) -> bool:
    """Whether the head's copy, if there is one, also finds the best ids."""
    return weights.lm_head.dtype == torch.bfloat16


def graphs_captured() -> int:
    """How many graphs this process has captured so far."""
    graphs = sys.modules.get("flashrt.engine.kernels.graphs")
    return graphs.Graph.captures if graphs else 0


def fingerprint(device: torch.device) -> str:
    """Of the code that decides a row's bits on `device`, beside the torch references."""
    if not usable(device):
        return "torch alone"
    digest = hashlib.blake2b(digest_size=16)
    for file in sorted(Path(__file__).parent.glob("*.py")):
        digest.update(file.read_bytes())
    processors = torch.cuda.get_device_properties(device).multi_processor_count
    triton = importlib.metadata.version("triton")
    return f"triton {triton} {digest.hexdigest()}, {processors} processors"
