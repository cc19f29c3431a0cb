"""A model whose few-row passes run by kernels, as captured graphs where one was captured."""

import copy
from collections.abc import Collection, Sequence
from functools import partial
from typing import Any

import attrs
import torch
from torch import Tensor

from flashrt.engine.buffers import CHUNK, Buffers, LinearState
from flashrt.engine.config import ModelConfig
from flashrt.engine.kernels import delta
from flashrt.engine.kernels.linear import COLUMNS, ROWS_MAX, head_linear
from flashrt.engine.kernels.step import Graph, RowsStep
from flashrt.engine.model import Model
from flashrt.engine.weights import ModelWeights

SHORTEST = 4096
"""Keys of the shortest bound; each next one is four times as long."""

SHORT_BLOCK = 256
"""Rows of a block up to which passes of rows are quicker."""


class KernelModel(Model):
    """Rows, short blocks, logits and folds by kernels; long blocks by the torch model.

    Its rows do not have the torch model's bits: one engine uses one of the two for all it does.
    """

    def __init__(
        self,
        config: ModelConfig,
        weights: ModelWeights,
        buffers: Buffers,
        counts: Collection[int] = (1,),
    ) -> None:
        """Captures a graph for each of `counts` rows and each bound of keys.

        This writes to the buffers: clear them before use.
        """
        super().__init__(config, weights, buffers)
        self._step = RowsStep.of(self)
        self._bounds = tuple(_bounds(buffers.kv.shape[3]))
        self._compile()
        self._graphs = {
            (rows, bound): Graph.capture(partial(self._step.run, rows, bound))
            for rows in counts
            for bound in self._bounds
        }

    def rows(self, ids: Sequence[int], position: int, anchor: int) -> None:
        """Process at most 64 rows at `position`. `anchor`: the newest chunk stored."""
        self._rows(ids, position, anchor)

    def block(self, ids: Sequence[int], position: int) -> Tensor:
        """Process all rows at `position` together; their final hidden rows [T, h].

        A short block goes in passes of rows that end where chunks do: each reads all weights, and
        still takes less time than launching the torch model.
        """
        if len(ids) > SHORT_BLOCK:
            return super().block(ids, position)
        hidden, anchor, start, end = [], position // CHUNK, position, position + len(ids)
        while start < end:
            stop = min(end, (start // CHUNK + 1) * CHUNK)
            part = ids[start - position : stop - position]
            hidden.append(self._rows(part, start, anchor).clone())
            anchor, start = start // CHUNK, stop
        return torch.cat(hidden)

    def _rows(self, ids: Sequence[int], position: int, anchor: int) -> Tensor:
        """Final hidden rows; the next replay overwrites them."""
        bound = next(keys for keys in self._bounds if position + len(ids) <= keys)
        self._step.place(ids, position, anchor)
        graph = self._graphs.get((len(ids), bound))
        return graph.replay() if graph else self._step.run(len(ids), bound)

    def head(self, hidden: Tensor) -> Tensor:
        """[M <= 64, h] -> [M, V] float32, row-invariantly."""
        return head_linear(hidden, self.weights.lm_head)

    def folded(self, state: LinearState, chunk: int) -> Tensor:
        """The anchor after `chunk`, with the bits of the fold inside a pass."""
        return delta.folded(state, chunk)

    def _compile(self) -> None:
        """Everything that graphs do not cover: nothing compiles while a request waits."""
        for bound in self._bounds:
            for rows in (1, COLUMNS, 2 * COLUMNS, ROWS_MAX):
                hidden = self._step.run(rows, bound)
        self._step.logits(hidden[:1])
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
        model = KernelModel(self.config, weights, buffers)
        for tensor, value in zip(tensors, saved, strict=True):
            tensor.copy_(value)
        return model


def _bounds(longest: int) -> list[int]:
    """Rising; the last one holds every key."""
    bounds = [SHORTEST]
    while bounds[-1] < longest:
        bounds.append(bounds[-1] * 4)
    return [min(bound, longest) for bound in bounds]
