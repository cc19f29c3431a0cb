"""A model that runs by kernels: rows and short blocks as captured graphs, long blocks without."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import attrs
import torch
from torch import Tensor

from flashrt.engine.buffers import CHUNK, Buffers
from flashrt.engine.config import ModelConfig
from flashrt.engine.kernels import block, copies_head, delta, finds_best
from flashrt.engine.kernels.besthead import BestHead
from flashrt.engine.kernels.block import BlockStep
from flashrt.engine.kernels.graphs import Graph, capturing
from flashrt.engine.kernels.linear import head_linear, rows_linear
from flashrt.engine.kernels.narrowhead import NarrowHead, WholeHead
from flashrt.engine.kernels.step import RowsStep
from flashrt.engine.model import Model
from flashrt.engine.weights import ModelWeights

SHORTEST = 4096
"""Keys of the shortest bound; each next one is four times as long."""

ROWS = (1, 4, 8, 16, 32, 64)
"""Rows of the captured row passes; a pass takes the next larger one, with dead rows."""

BLOCKS = (32, 64, 128, 256, 512)
"""Rows of the captured block passes; a longer block is computed before it is launched."""


class KernelModel(Model):
    """Rows, blocks, logits and folds by kernels; blocks of a float32 model by the torch model.

    Its rows do not have the torch model's bits: one engine uses one of the two for all it does.
    """

    rows_product = staticmethod(rows_linear)
    head_product = staticmethod(head_linear)
    runs_ahead = True

    def __init__(self, config: ModelConfig, weights: ModelWeights, buffers: Buffers) -> None:
        """Captures a graph for each size of a pass and each bound of keys.

        This writes to the buffers, which are zeros afterwards.
        """
        super().__init__(config, weights, buffers)
        self.bounds = tuple(_bounds(buffers.kv.shape[3]))
        self.by_blocks = weights.embed.dtype == torch.bfloat16
        self.drafting_head, self._best_head = _heads(weights)
        self._rows_step, self._block_step = RowsStep.of(self), BlockStep.of(self)
        with capturing() as pool:
            self._row_graphs = self._captured(self._rows_step.pieces, ROWS, pool)
            blocks = BLOCKS if self.by_blocks else ()
            self._block_graphs = self._captured(self._block_step.pieces, blocks, pool)
        self._compile()
        for tensor in _tensors(buffers):
            tensor.zero_()

    def rows(self, ids: Sequence[int], position: int, anchor: int) -> None:
        """Process at most 64 rows at `position`. `anchor`: the newest chunk stored."""
        size = next(size for size in ROWS if len(ids) <= size)
        self._rows_step.place(ids, position, anchor)
        self._row_graphs[size, self._bound(position + len(ids))].replay()

    def row_ahead(self, id_: Tensor, position: int, anchor: int) -> None:
        """Process one row whose id [1] the device holds. Nothing is waited for."""
        self._rows_step.place_ahead(id_, position, anchor)
        self._row_graphs[1, self._bound(position + 1)].replay()

    def block(self, ids: Sequence[int], position: int) -> Tensor:
        """Process all rows at `position`, in passes of a size that is quick; -> [T, h]."""
        if not self.by_blocks:
            return super().block(ids, position)
        hidden = []
        for lo in range(0, len(ids), block.ROWS_MAX):
            part, start = ids[lo : lo + block.ROWS_MAX], position + lo
            if lo and start % CHUNK == 0:  # the pass before has left the chunk open
                self.buffers.anchors[:, start // CHUNK % 2] = self.folded(start // CHUNK - 1)
            hidden.append(self._block(part, start))
        return torch.cat(hidden)

    def best_of(self, position: int, count: int, limit: int) -> tuple[Tensor, Tensor]:
        """The same scores and ids, where the head has a copy with most of it unread."""
        if self._best_head is None:
            return super().best_of(position, count, limit)
        return self._best_head.best(self.newest(position, count), limit)

    def _block(self, ids: Sequence[int], position: int) -> Tensor:
        bound, count = self._bound(position + len(ids)), len(ids)
        self._block_step.place(ids, position)
        size = next((size for size in BLOCKS if count <= size), None)
        if size is None:
            return self._block_step.run(count, bound)
        return self._block_graphs[size, bound].replay()[:count].clone()

    def folded(self, chunk: int) -> Tensor:
        """The anchors after `chunk` [Ll, Hv, dk, dv], with the bits of the fold inside a pass."""
        return delta.folded(self.buffers, chunk)

    def _bound(self, length: int) -> int:
        return next(keys for keys in self.bounds if length <= keys)

    def _captured(
        self, run: Callable[[int, int], Iterator[Tensor | None]], sizes: Sequence[int], pool: Any
    ) -> dict[tuple[int, int], Graph]:
        """Graphs by size and bound, largest first: the smaller ones fit into its memory."""
        return {
            (size, bound): Graph.capture(partial(run, size, bound), pool)
            for size in reversed(sizes)
            for bound in reversed(self.bounds)
        }

    def _compile(self) -> None:
        """What is not in a graph: nothing compiles while a request waits."""
        for size in ROWS:
            self.head(self.buffers.hidden[:size])
            self.best_of(size, size, self.config.vocab_size)
        self.folded(0)
        if self._block_graphs:
            self._block_step.place([0] * (BLOCKS[-1] + 1), 0)
            for bound in self.bounds:
                self._block_step.run(BLOCKS[-1] + 1, bound)


def _heads(weights: ModelWeights) -> tuple[NarrowHead | WholeHead, BestHead | None]:
    """What drafts are chosen by, and what finds the best ids if that is not all scores."""
    head = weights.lm_head
    if not copies_head(weights):
        return WholeHead(head), None
    assert isinstance(head, Tensor)
    narrow = NarrowHead.of(head)
    return narrow, BestHead.of(head, narrow) if finds_best(weights) else None


def _tensors(buffers: Buffers) -> Iterator[Tensor]:
    """Each of them once."""
    values = attrs.asdict(buffers, recurse=False).values()
    return (value for value in values if isinstance(value, Tensor))


def _bounds(longest: int) -> list[int]:
    """Rising; the last one holds every key."""
    bounds = [SHORTEST]
    while bounds[-1] < longest:
        bounds.append(bounds[-1] * 4)
    return [min(bound, longest) for bound in bounds]
