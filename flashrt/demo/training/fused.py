"""Pieces of the network that a compiler may fuse on a GPU; elsewhere they run as written."""

from collections.abc import Callable
from functools import wraps
from typing import TypeVar

import torch

T = TypeVar("T")


def fused(piece: Callable[..., T]) -> Callable[..., T]:
    """Compiled where its first argument is on a GPU. Shapes must not change from call to call."""
    compiled = torch.compile(piece, dynamic=False)

    @wraps(piece)
    def call(*args):
        return (compiled if args[0].is_cuda else piece)(*args)

    return call
