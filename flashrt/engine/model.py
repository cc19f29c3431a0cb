"""The forward pass over static buffers: once through all layers for a group of rows or a block."""

from collections.abc import Iterator, Sequence

import attrs
import torch
from torch import Tensor

from flashrt.engine import ops
from flashrt.engine.buffers import RING, Buffers, LinearState
from flashrt.engine.config import ModelConfig
from flashrt.engine.delta import folded
from flashrt.engine.ffn import feed_forward
from flashrt.engine.linear import GROUP, head_linear, rows_linear
from flashrt.engine.mixers import FullMixer, LinearMixer, Mixer
from flashrt.engine.passes import BlockPass, Pass, RowsPass, ring_index, store_in_ring
from flashrt.engine.weights import (
    FfnWeights,
    FullAttentionWeights,
    LayerWeights,
    LinearAttentionWeights,
    ModelWeights,
)


@attrs.frozen(eq=False)
class Layer:
    """x + mixer(norm(x)), then x + mlp(norm(x))."""

    mixer: Mixer
    mlp: FfnWeights
    input_scale: Tensor
    """[h] float32."""
    post_scale: Tensor
    """[h] float32."""
    eps: float

    def forward(self, x: Tensor, go: Pass) -> Tensor:
        """x [T, h] -> [T, h]."""
        return self.finish(x + self.mixer.forward(self.normed(x), go), go)

    def normed(self, x: Tensor) -> Tensor:
        """What the mixer reads of x [T, h]."""
        return ops.rms_norm(x, self.input_scale, self.eps)

    def finish(self, x: Tensor, go: Pass) -> Tensor:
        """The feed-forward half on x [T, h], to which the mixer's output has been added."""
        y = ops.rms_norm(x, self.post_scale, self.eps)
        return x + feed_forward(y, self.mlp, go)


class Model:
    """Weights and buffers wired together. Extends the buffers; knows no lengths but those given."""

    rows_product = staticmethod(rows_linear)
    """What `rows` multiplies with: x [M <= 64, K], weight [N, K] -> [M, N]."""
    head_product = staticmethod(head_linear)
    """The same with float32 results."""
    runs_ahead = False
    """Whether the device computes beside the host, so that a row ahead of it costs no time."""

    def __init__(self, config: ModelConfig, weights: ModelWeights, buffers: Buffers) -> None:
        self.config = config
        self.weights = weights
        self.buffers = buffers
        self.device = weights.embed.device
        rows = buffers.kv.shape[3]
        # One group of dead rows may stand beyond the last position.
        self.tables = ops.rotary_tables(
            rows + GROUP, config.rotary_dim, config.rope_theta, self.device
        )
        self.layers = tuple(_layers(config, weights, buffers, self.tables))
        self.final_scale = 1 + weights.final_norm.float()

    def rows(self, ids: Sequence[int], position: int, anchor: int) -> None:
        """Process few rows at `position`, row-invariantly. `anchor`: the newest chunk stored."""
        for lo in range(0, len(ids), GROUP):
            part = ids[lo : lo + GROUP]
            self._run(self._tensor(part), RowsPass(position + lo, len(part), anchor))

    def row_ahead(self, id_: Tensor, position: int, anchor: int) -> None:
        """Process one row as `rows` does, its id [1] int64 where the model is."""
        self._run(id_, RowsPass(position, 1, anchor))

    def block(self, ids: Sequence[int], position: int) -> Tensor:
        """Process all rows at `position` together; their final hidden rows [T, h]."""
        return self._run(self._tensor(ids), BlockPass(position, len(ids)))

    def logits(self, position: int) -> Tensor:
        """[V] float32 after `position` tokens, from the last hidden row."""
        return self.logits_of(position, 1)[0]

    def logits_of(self, position: int, count: int) -> Tensor:
        """[count <= 64, V] float32 of the newest rows of `position` tokens."""
        return self.head(self.newest(position, count))

    def best_of(self, position: int, count: int, limit: int) -> tuple[Tensor, Tensor]:
        """Of the same rows the best score [count] float32 and its id [count] int64, of ids below
        `limit`; of equals the lowest. What a row that is not finite has as a score is not either.
        """
        values, ids = self.logits_of(position, count)[:, :limit].max(-1)
        return values, ids

    def newest(self, position: int, count: int) -> Tensor:
        """[count <= 64, h]: the final hidden rows of the newest of `position` tokens."""
        hidden, start = self.buffers.hidden, (position - count) % RING
        if start + count <= RING:
            return hidden[start : start + count]
        return hidden[ring_index(start, start + count, self.device)]

    def head(self, hidden: Tensor) -> Tensor:
        """[M <= 64, h] -> [M, V] float32, row-invariantly."""
        return self.head_product(hidden, self.weights.lm_head)

    def folded(self, chunk: int) -> Tensor:
        """The anchors after `chunk` [Ll, Hv, dk, dv], with the bits of a fold that rows cross."""
        return torch.stack([folded(state, chunk) for state in self.buffers.linear])

    def _tensor(self, ids: Sequence[int]) -> Tensor:
        return torch.tensor(ids, device=self.device)

    def _run(self, ids: Tensor, go: Pass) -> Tensor:
        x = self.weights.embed[go.pad(ids)]  # [T, h]
        for layer in self.layers:
            x = layer.forward(x, go)
        # In the family for few rows all of the group is normed: its shape is fixed.
        hidden = ops.rms_norm(x, self.final_scale, self.config.rms_eps)[: go.count]
        store_in_ring(self.buffers.hidden, go.position, hidden)
        return hidden


def layer_of(config: ModelConfig, weights: LayerWeights, mixer: Mixer) -> Layer:
    """With what is derived from the weights once."""
    scales = 1 + weights.input_norm.float(), 1 + weights.post_norm.float()
    return Layer(mixer, weights.mlp, *scales, config.rms_eps)


def _layers(
    config: ModelConfig, weights: ModelWeights, buffers: Buffers, tables: tuple[Tensor, Tensor]
) -> Iterator[Layer]:
    """Each layer with its part of the buffers."""
    linear, full = iter(buffers.linear), iter(buffers.kv)
    for layer in weights.layers:
        yield layer_of(config, layer, _mixer(config, layer, linear, full, tables))


def _mixer(
    config: ModelConfig,
    layer: LayerWeights,
    linear: Iterator[LinearState],
    full: Iterator[Tensor],
    tables: tuple[Tensor, Tensor],
) -> Mixer:
    match layer.mixer:
        case LinearAttentionWeights() as weights:
            return LinearMixer.of(config, weights, next(linear))
        case FullAttentionWeights() as weights:
            return FullMixer.of(config, weights, next(full), tables)
