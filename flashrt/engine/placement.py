"""Where a model runs and in which number format, from the words that people use."""

import attrs
import torch

from flashrt.errors import CannotServe

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}


@attrs.frozen
class Placement:
    """A device of this machine and the dtype of the weights on it."""

    device: torch.device
    dtype: torch.dtype

    @classmethod
    def of(cls, device: str, dtype: str) -> "Placement":
        """`auto` device: CUDA where there is one. `auto` dtype: bfloat16 there, float32 on a CPU.

        Raises CannotServe for a device that this machine does not have.
        """
        has_cuda = torch.cuda.is_available()
        if device == "auto":
            device = "cuda" if has_cuda else "cpu"
        if device.startswith("cuda") and not has_cuda:
            raise CannotServe(
                f"--device {device}: torch {torch.__version__} finds no CUDA device here; "
                "use --device cpu"
            )
        if dtype == "auto":
            dtype = "float32" if device == "cpu" else "bfloat16"
        return cls(torch.device(device), DTYPES[dtype])
