"""The engine's device path: own Triton kernels over the same buffers as the torch references.

Nothing here is imported where there is no CUDA device or no Triton; `usable` says whether it is.
Every kernel keeps the promise of the row family: a row's bits depend neither on how many rows ride
along nor on its index among them. So nothing that fixes the order of a sum (tile, split, padding)
may depend on the number of rows.
"""

import importlib.util

import torch


def usable(device: torch.device) -> bool:
    """Whether this machine can run the kernels on `device`."""
    return device.type == "cuda" and importlib.util.find_spec("triton") is not None
