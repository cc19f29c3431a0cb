"""A model whose few-row passes run by kernels, as captured graphs where one was captured."""

from collections.abc import Collection, Sequence

from torch import Tensor

from flashrt.engine.buffers import RING, Buffers, LinearState
from flashrt.engine.config import ModelConfig
from flashrt.engine.kernels import delta
from flashrt.engine.kernels.linear import COLUMNS, ROWS_MAX, head_linear
from flashrt.engine.kernels.step import Graph, RowsStep
from flashrt.engine.model import Model
from flashrt.engine.weights import ModelWeights

SHORTEST = 4096
"""Keys of the shortest bound; each next one is four times as long."""


class KernelModel(Model):
    """Blocks go the way of the torch model; rows, logits and folds by kernels.

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
        for rows in (COLUMNS, 2 * COLUMNS, ROWS_MAX):  # compile what graphs do not cover
            self._step.run(rows, self._bounds[-1])
        self._graphs = {
            (rows, bound): Graph.capture(lambda rows=rows, bound=bound: self._step.run(rows, bound))
            for rows in counts
            for bound in self._bounds
        }

    def rows(self, ids: Sequence[int], position: int, anchor: int) -> None:
        """Process at most 64 rows at `position`. `anchor`: the newest chunk stored."""
        bound = next(keys for keys in self._bounds if position + len(ids) <= keys)
        self._step.place(ids, position, anchor)
        graph = self._graphs.get((len(ids), bound))
        if graph is None:
            self._step.run(len(ids), self._bounds[-1])
        else:
            graph.replay()

    def logits(self, position: int) -> Tensor:
        """[V] float32 after `position` tokens, from the last hidden row."""
        last = self.buffers.hidden[(position - 1) % RING]
        return head_linear(last[None], self.weights.lm_head)[0]

    def folded(self, state: LinearState, chunk: int) -> Tensor:
        """The anchor after `chunk`, with the bits of the fold inside a pass."""
        return delta.folded(state, chunk)


def _bounds(longest: int) -> list[int]:
    """Rising; the last one holds every key."""
    bounds = [SHORTEST]
    while bounds[-1] < longest:
        bounds.append(bounds[-1] * 4)
    return [min(bound, longest) for bound in bounds]
