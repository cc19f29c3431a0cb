"""Buffers of capsules in host memory: copied there beside the engine's work, and as bytes.

On a GPU a thread copies on a stream of its own, a few pieces at a time, into pinned memory that was
taken at start, so that neither the engine's steps nor its thread wait for it. On a CPU there is one
memory, and a copy is a copy.
"""

import math
import weakref
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import attrs
import torch
from torch import Tensor

from flashrt.engine.arena import Arena, Extent
from flashrt.engine.bounce import Bounce
from flashrt.engine.paged import Paged, placed, size_of
from flashrt.engine.pinned import pinned_pieces
from flashrt.engine.protocol import HostCopy, RawBuffer
from flashrt.engine.pump import Pump, SideStream

HostBuffers = Mapping[str, Tensor | Paged]

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

    buffers: HostBuffers
    done: bool = True

    def wait(self) -> HostBuffers:
        """The copy."""
        return self.buffers


class HostCopies:
    """Begins copies from one device; they are done in the order in which they are begun.

    With an arena they lie in it, and nothing is taken from the system for them. Without one they
    lie in plain memory, and there is no limit but the system's.
    """

    def __init__(self, device: torch.device, arena: Arena | None = None) -> None:
        self._device = device
        self._pump = Pump(SideStream(device)) if device.type == "cuda" else None
        self._bounce = Bounce(device) if device.type == "cuda" else None
        for thread in (self._pump, self._bounce):
            if thread is not None:
                weakref.finalize(self, thread.close).atexit = False
        self._arena = arena

    def take(self, size_bytes: int) -> int:
        """Take pinned memory for all further copies, and say how much was there. A CPU's is one
        memory, of which nothing is set apart."""
        if self._device.type != "cuda":
            return size_bytes
        self._arena = Arena(pinned_pieces(size_bytes, self._device))
        return self._arena.size_bytes

    def rounded(self, size_bytes: int) -> int:
        """What a copy of so many bytes takes."""
        return size_bytes if self._arena is None else self._arena.rounded(size_bytes)

    @torch.inference_mode()
    def begin(self, buffers: Mapping[str, Tensor]) -> HostCopy:
        """Raises MemoryError where the arena has no room. Waits for nothing but, where room is
        short, the pieces under way of copies that nobody wants any more."""
        if self._arena is None:
            return self.apart(buffers)
        copy = placed(buffers, self._room(buffers))
        if self._pump is not None:
            return self._pump.begin(buffers, copy)
        for name, buffer in buffers.items():
            copy[name].fill(buffer)
        return Copied(copy)

    @torch.inference_mode()
    def apart(self, buffers: Mapping[str, Tensor]) -> HostCopy:
        """The same in plain memory, which the arena knows nothing of."""
        if self._bounce is None:
            return Copied(MappingProxyType({name: b.clone() for name, b in buffers.items()}))
        return self._bounce.begin(buffers)

    @torch.inference_mode()
    def back(self, buffers: HostBuffers) -> Mapping[str, Tensor]:
        """In the device's memory; what lies there is not copied. Raises what allocating raises."""
        made = {name: self._back(buffer) for name, buffer in buffers.items()}
        self.arrived(buffers)
        return MappingProxyType(made)

    def arrived(self, buffers: HostBuffers) -> None:
        """Wait for copies from these to the device, once for all of them: their room may be given
        to others then, and who measures knows what the way took."""
        on_gpu = self._device.type == "cuda"
        if on_gpu and any(isinstance(b, Paged) for b in buffers.values()):
            torch.cuda.current_stream(self._device).synchronize()

    # -- inside ------------------------------------------------------------------------------------

    def _back(self, buffer: Tensor | Paged) -> Tensor:
        if isinstance(buffer, Tensor):
            return buffer.to(self._device)
        there = torch.empty(buffer.shape, dtype=buffer.dtype, device=self._device)
        buffer.into(there)
        return there

    def _room(self, buffers: Mapping[str, Tensor]) -> Sequence[Extent]:
        """Raises MemoryError."""
        assert self._arena is not None
        try:
            return self._arena.take(size_of(buffers))
        except MemoryError:
            if self._pump is None or not self._pump.let_go():
                raise
        return self._arena.take(size_of(buffers))


def to_bytes(buffers: Mapping[str, Any]) -> Mapping[str, RawBuffer]:
    """Views of the bytes of tensors in host memory."""
    return {name: _raw(tensor) for name, tensor in buffers.items()}


def from_bytes(raw: Mapping[str, RawBuffer]) -> Mapping[str, Tensor]:
    """Tensors in host memory. Raises ValueError."""
    return {name: _tensor(name, buffer) for name, buffer in raw.items()}


def _raw(tensor: Tensor | Paged) -> RawBuffer:
    if isinstance(tensor, Paged):
        dtype = str(tensor.dtype).removeprefix("torch.")
        return RawBuffer(dtype, tensor.shape, tuple(piece.data for piece in tensor.pieces))
    flat = tensor.detach().contiguous().reshape(-1).view(torch.uint8)
    dtype = str(tensor.dtype).removeprefix("torch.")
    return RawBuffer(dtype, tuple(tensor.shape), flat.numpy().data)


def _tensor(name: str, raw: RawBuffer) -> Tensor:
    dtype, pieces = DTYPES.get(raw.dtype), raw.pieces
    view = pieces[0] if len(pieces) == 1 else memoryview(b"".join(pieces))
    if dtype is None:
        raise ValueError(f"{name!r} holds {raw.dtype!r}; a state has {', '.join(DTYPES)}")
    if min(raw.shape, default=0) < 0 or view.nbytes != math.prod(raw.shape) * dtype.itemsize:
        raise ValueError(f"{name!r} has {view.nbytes} bytes, which are not {raw.dtype} {raw.shape}")
    if not view.nbytes:
        return torch.empty(raw.shape, dtype=dtype)
    data = bytearray(view) if view.readonly else view
    return torch.frombuffer(data, dtype=dtype).reshape(raw.shape)
