"""What a figure was measured on, and a clock that waits for the device."""

import importlib.metadata
import platform
import time

import attrs
import torch

import flashrt

LIBRARIES = ("torch", "triton", "transformers", "vllm", "fla-core")


@attrs.frozen
class Clock:
    """Seconds by the host. Work that is still under way on the device is waited for."""

    device: torch.device

    def now(self) -> float:
        """When everything asked of the device so far is done."""
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        return time.perf_counter()

    def on_host(self) -> float:
        """When the host has what it waited for; the device may be at work on what comes next."""
        return time.perf_counter()


def facts(device: torch.device, dtype: torch.dtype) -> dict[str, object]:
    """The machine and the versions, for a table's head and for JSON."""
    return {
        "device": device_name(device),
        "memory_bytes": memory_bytes(device),
        "threads": torch.get_num_threads(),
        "dtype": str(dtype).removeprefix("torch."),
        "python": platform.python_version(),
        "flashrt": flashrt.__version__,
        **{name: version(name) for name in LIBRARIES},
    }


def device_name(device: torch.device) -> str:
    """As people know it."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return f"{platform.processor() or platform.machine()} (CPU)"


def memory_bytes(device: torch.device) -> int | None:
    """Of a GPU, all of it; a CPU's is shared with everybody."""
    if device.type == "cuda":
        return int(torch.cuda.get_device_properties(device).total_memory)
    return None


def version(library: str) -> str | None:
    """None where it is not installed."""
    try:
        return importlib.metadata.version(library)
    except importlib.metadata.PackageNotFoundError:
        return None
