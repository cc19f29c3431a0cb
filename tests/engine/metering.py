"""How many bytes of tensors torch's operations hold at once, counted operation by operation."""

import weakref
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten


class Meter(TorchDispatchMode):
    """Counts storages that are made inside the block. What an operation takes by itself and gives
    back before it ends is not seen."""

    def __init__(self) -> None:
        super().__init__()
        self.held = self.peak = 0
        self._known: set[int] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        before = {id_of(t) for t in tree_flatten((args, kwargs))[0] if isinstance(t, torch.Tensor)}
        made = func(*args, **(kwargs or {}))
        for tensor in tree_flatten(made)[0]:
            if isinstance(tensor, torch.Tensor) and id_of(tensor) not in before:
                self._see(tensor)
        return made

    def _see(self, tensor: torch.Tensor) -> None:
        storage = tensor.untyped_storage()
        key, size = storage._cdata, storage.nbytes()
        if key in self._known:
            return
        self._known.add(key)
        self.held += size
        self.peak = max(self.peak, self.held)
        weakref.finalize(storage, self._gone, key, size)

    def _gone(self, key: int, size: int) -> None:
        self._known.discard(key)
        self.held -= size


def id_of(tensor: torch.Tensor) -> int:
    """Of the memory behind it."""
    return tensor.untyped_storage()._cdata
