"""Captured graphs: a whole pass in one launch."""

import contextlib
import gc
from collections.abc import Callable, Iterator
from typing import Any, ClassVar

import attrs
import torch
from torch import Tensor


@contextlib.contextmanager
def capturing() -> Iterator[Any]:
    """Where graphs are captured; -> the memory that they share, since only one runs at a time.

    A graph that is collected while another is captured would spoil it, so nothing is.
    """
    gc.collect()
    gc.disable()
    try:
        yield torch.cuda.graph_pool_handle()
    finally:
        gc.enable()


Body = Callable[[], Iterator[Tensor | None]]
"""What is captured: it yields where a graph may end, and its result at last."""


@attrs.define(eq=False)
class Graph:
    """A captured run of a body, its result always in the same tensor.

    In pieces, since the device begins with a graph when all of it is launched, which takes the host
    about a microsecond a kernel: while a short one runs, the next and longer one is launched.
    """

    pieces: tuple[torch.cuda.CUDAGraph, ...]
    result: Tensor
    captures: ClassVar[int] = 0
    """How many this process has captured."""

    @classmethod
    def capture(cls, body: Body, pool: Any) -> "Graph":
        """Run once to compile everything, then capture. Not while a request waits."""
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in body():
                pass
        torch.cuda.current_stream().wait_stream(side)
        pieces: list[torch.cuda.CUDAGraph] = []
        run, result = body(), None
        while result is None:
            pieces.append(torch.cuda.CUDAGraph())
            with torch.cuda.graph(pieces[-1], pool=pool):
                result = next(run)
        cls.captures += 1
        return cls(tuple(pieces), result)

    def replay(self) -> Tensor:
        """Run again; -> the result, overwritten by the next replay of any graph of its pool."""
        for piece in self.pieces:
            piece.replay()
        return self.result


def in_one(run: Callable[[], Tensor]) -> Body:
    """A short body, which is one graph."""

    def body() -> Iterator[Tensor]:
        yield run()

    return body


def borders(layers: int) -> frozenset[int]:
    """After how many of a model's layers a piece ends."""
    return frozenset({max(1, layers // 32), max(1, layers // 4)})
