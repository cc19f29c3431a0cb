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


@attrs.define(eq=False)
class Graph:
    """A captured run of `body`: replayed in one launch, its result always in the same tensor."""

    graph: torch.cuda.CUDAGraph
    result: Tensor
    captures: ClassVar[int] = 0
    """How many this process has captured."""

    @classmethod
    def capture(cls, body: Callable[[], Tensor], pool: Any) -> "Graph":
        """Run once to compile everything, then capture. Not while a request waits."""
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            body()
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=pool):
            result = body()
        cls.captures += 1
        return cls(graph, result)

    def replay(self) -> Tensor:
        """Run again; -> the result, overwritten by the next replay of any graph of its pool."""
        self.graph.replay()
        return self.result
