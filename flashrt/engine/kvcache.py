"""K and V as they are kept: in the model's dtype, in bfloat16, or in e4m3.

e4m3 needs no scale here. Keys are normed, so their size is that of the norm's weights, and values
are sums of normed rows: far below 448 and far above 2 ** -9, its largest and smallest numbers. What
passes 448 becomes 448; what is below 2 ** -6 is rounded to multiples of 2 ** -9, which loses digits
of a number that hardly counts beside the others of its head.

Whoever reads K and V reads what is stored, never what was rounded: so a row sees its own as others
see it, and a restored state has the bytes of one that was never left.
"""

from collections.abc import Mapping

import torch
from torch import Tensor

from flashrt.errors import CannotServe

FP8 = torch.float8_e4m3fn
FP8_MOST = 448.0
"""The largest number of e4m3."""

KV_DTYPES: Mapping[str, torch.dtype | None] = {"auto": None, "bf16": torch.bfloat16, "fp8": FP8}
"""By the words of `--kv-cache-dtype`; None is the model's own."""

FP8_CAPABILITY = (8, 9)
"""Of the first GPUs that have e4m3."""


def check_served(kv_dtype: torch.dtype, device: torch.device) -> None:
    """Raises CannotServe where the device cannot store it."""
    if kv_dtype == FP8 and not has_fp8(device):
        capability = torch.cuda.get_device_capability(device)
        raise CannotServe(
            f"--kv-cache-dtype fp8: {torch.cuda.get_device_name(device)} has compute capability "
            f"{'.'.join(map(str, capability))}, and e4m3 begins with "
            f"{'.'.join(map(str, FP8_CAPABILITY))}; use --kv-cache-dtype bf16"
        )


def has_fp8(device: torch.device) -> bool:
    """Whether e4m3 can be stored there. Of a GPU that is not in this machine nobody says no."""
    if device.type != "cuda" or not torch.cuda.is_available():
        return True
    return torch.cuda.get_device_capability(device) >= FP8_CAPABILITY


def stored(rows: Tensor, kv_dtype: torch.dtype) -> Tensor:
    """Rows of K or V as they are kept, to the nearest, of equals the even one; see above."""
    if kv_dtype == FP8:
        # Of what is too large PyTorch makes NaN or the largest number, by its version and device.
        rows = rows.float().clamp(-FP8_MOST, FP8_MOST)
    return rows.to(kv_dtype)
