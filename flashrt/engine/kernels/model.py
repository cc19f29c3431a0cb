"""A model whose few-row passes run by kernels, as captured graphs where one was captured."""

import copy
from collections.abc import Sequence
from functools import partial
from typing import Any

import attrs
import torch
from torch import Tensor

from flashrt.engine.buffers import CHUNK, Buffers, LinearState
from flashrt.engine.config import ModelConfig
from flashrt.engine.kernels import delta
from flashrt.engine.kernels.linear import head_linear, rows_linear
from flashrt.engine.kernels.step import Graph, RowsStep
from flashrt.engine.model import Model
from flashrt.engine.weights import ModelWeights

SHORTEST = 4096
"""Keys of the shortest bound; each next one is four times as long."""

SHORT_BLOCK = 256
"""Rows of a block up to which passes of rows are quicker."""

SIZES = (1, 4, 8, 16, 32, 64)
"""Rows of the captured graphs; a pass takes the next larger one, with dead rows."""


class KernelModel(Model):
    """Rows, short blocks, logits and folds by kernels; long blocks by the torch model.

    Its rows do not have the torch model's bits: one engine uses one of the two for all it does.
    """

    rows_product = staticmethod(rows_linear)
    head_product = staticmethod(head_linear)

    def __init__(
        self,
        config: ModelConfig,
        weights: ModelWeights,
        buffers: Buffers,
        sizes: Sequence[int] = SIZES,
    ) -> None:
        """Captures a graph for each of the rising `sizes` and each bound of keys.

        This writes to the buffers: clear them before use.
        """
        super().__init__(config, weights, buffers)
        self._step = RowsStep.of(self)
        self._bounds = tuple(_bounds(buffers.kv.shape[3]))
        self._sizes = tuple(sizes)
        self._graphs = {
            (size, bound): Graph.capture(partial(self._step.run, size, bound))
            for size in self._sizes
            for bound in self._bounds
        }
        self._compile()

    def rows(self, ids: Sequence[int], position: int, anchor: int) -> None:
        """Process at most 64 rows at `position`. `anchor`: the newest chunk stored."""
        self._rows(ids, position, anchor)

    def block(self, ids: Sequence[int], position: int) -> Tensor:
        """Process all rows at `position` together; their final hidden rows [T, h].

        A short block goes in passes of rows: each reads all weights, and still takes less time than
        launching the torch model.
        """
        if len(ids) > SHORT_BLOCK:
            return super().block(ids, position)
        hidden, anchor = [], position // CHUNK
        for lo in range(0, len(ids), self._sizes[-1]):
            part = ids[lo : lo + self._sizes[-1]]
            hidden.append(self._rows(part, position + lo, anchor).clone())
            anchor = (position + lo) // CHUNK
        last = (position + len(ids) - 1) // CHUNK
        if last > anchor:  # the last pass used this fold and did not store it
            for state in self.buffers.linear:
                state.anchors[last % 2] = delta.folded(state, anchor)
        return torch.cat(hidden)

    def _rows(self, ids: Sequence[int], position: int, anchor: int) -> Tensor:
        """Final hidden rows; the next replay overwrites them."""
        bound = next(keys for keys in self._bounds if position + len(ids) <= keys)
        size = next(size for size in self._sizes if len(ids) <= size)
        self._step.place(ids, position, anchor)
        return self._graphs[size, bound].replay()[: len(ids)]

    def folded(self, state: LinearState, chunk: int) -> Tensor:
        """The anchor after `chunk`, with the bits of the fold inside a pass."""
        return delta.folded(state, chunk)

    def _compile(self) -> None:
        """What is not in a graph: nothing compiles while a request waits."""
        self.head(self.buffers.hidden[:1])
        for state in self.buffers.linear[:1]:
            delta.folded(state, 0)

    def __deepcopy__(self, memo: dict[int, Any]) -> "KernelModel":
        """Over copies of the tensors; graphs cannot be copied, so new ones are captured."""
        weights = copy.deepcopy(self.weights, memo)
        buffers = copy.deepcopy(self.buffers, memo)
        tensors = [
            x for x in attrs.asdict(buffers, recurse=False).values() if isinstance(x, Tensor)
        ]
        saved = [tensor.clone() for tensor in tensors]
        model = KernelModel(self.config, weights, buffers, self._sizes)
        for tensor, value in zip(tensors, saved, strict=True):
            tensor.copy_(value)
        return model


def _bounds(longest: int) -> list[int]:
    """Rising; the last one holds every key."""
    bounds = [SHORTEST]
    while bounds[-1] < longest:
        bounds.append(bounds[-1] * 4)
    return [min(bound, longest) for bound in bounds]
