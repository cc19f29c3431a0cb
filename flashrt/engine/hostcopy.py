"""Buffers of capsules in host memory: copied there beside the engine's work, and as bytes.

On a GPU a copy runs on a stream of its own, into pinned memory, so that neither the engine's steps
nor Python wait for it. On a CPU there is one memory, and a copy is a copy.
"""

import math
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import attrs
import torch
from torch import Tensor

from flashrt.engine.protocol import HostCopy, RawBuffer

DTYPES = {
    str(dtype).removeprefix("torch."): dtype
    for dtype in (
        *(torch.float32, torch.bfloat16, torch.float16, torch.float8_e4m3fn),
        *(torch.int64, torch.int32),
    )
}
"""What buffers of a state may hold, by the names that files have for it."""


@attrs.frozen(eq=False)
class Copied:
    """A copy that is whole already."""

    buffers: Mapping[str, Tensor]
    done: bool = True

    def wait(self) -> Mapping[str, Tensor]:
        """The copy."""
        return self.buffers


@attrs.frozen(eq=False)
class OnStream:
    """A copy that is whole when `event` has come by. Holds what it is made from until then."""

    buffers: Mapping[str, Tensor]
    source: Mapping[str, Tensor]
    event: torch.cuda.Event

    @property
    def done(self) -> bool:
        """Whether the event has come by."""
        return bool(self.event.query())

    def wait(self) -> Mapping[str, Tensor]:
        """Until it has."""
        self.event.synchronize()
        return self.buffers


class HostCopies:
    """Begins copies from one device; they are done in the order in which they are begun."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._stream = torch.cuda.Stream(device) if device.type == "cuda" else None

    @torch.inference_mode()
    def begin(self, buffers: Mapping[str, Tensor]) -> HostCopy:
        """Raises what allocating raises, where the host has no memory, or none to pin."""
        if self._stream is None:
            return Copied(MappingProxyType({name: b.clone() for name, b in buffers.items()}))
        self._stream.wait_stream(torch.cuda.current_stream(self._stream.device))
        copy: dict[str, Tensor] = {}
        with torch.cuda.stream(self._stream):
            for name, buffer in buffers.items():
                copy[name] = torch.empty(buffer.shape, dtype=buffer.dtype, pin_memory=True)
                copy[name].copy_(buffer, non_blocking=True)
                if buffer.is_cuda:
                    buffer.record_stream(self._stream)
            event = torch.cuda.Event()
            event.record(self._stream)
        return OnStream(MappingProxyType(copy), dict(buffers), event)

    @torch.inference_mode()
    def back(self, buffers: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        """In the device's memory; what lies there is not copied. Raises what allocating raises."""
        return MappingProxyType({name: b.to(self._device) for name, b in buffers.items()})


def to_bytes(buffers: Mapping[str, Any]) -> Mapping[str, RawBuffer]:
    """Views of the bytes of tensors in host memory."""
    return {name: _raw(tensor) for name, tensor in buffers.items()}


def from_bytes(raw: Mapping[str, RawBuffer]) -> Mapping[str, Tensor]:
    """Tensors in host memory. Raises ValueError."""
    return {name: _tensor(name, buffer) for name, buffer in raw.items()}


def _raw(tensor: Tensor) -> RawBuffer:
    flat = tensor.detach().contiguous().reshape(-1).view(torch.uint8)
    dtype = str(tensor.dtype).removeprefix("torch.")
    return RawBuffer(dtype, tuple(tensor.shape), flat.numpy().data)


def _tensor(name: str, raw: RawBuffer) -> Tensor:
    dtype, view = DTYPES.get(raw.dtype), memoryview(raw.data)
    if dtype is None:
        raise ValueError(f"{name!r} holds {raw.dtype!r}; a state has {', '.join(DTYPES)}")
    if min(raw.shape, default=0) < 0 or view.nbytes != math.prod(raw.shape) * dtype.itemsize:
        raise ValueError(f"{name!r} has {view.nbytes} bytes, which are not {raw.dtype} {raw.shape}")
    if not view.nbytes:
        return torch.empty(raw.shape, dtype=dtype)
    data = bytearray(view) if view.readonly else view
    return torch.frombuffer(data, dtype=dtype).reshape(raw.shape)
