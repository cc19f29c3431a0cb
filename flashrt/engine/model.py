"""The forward pass over static buffers: once through all layers for a group of rows or a block."""

from collections.abc import Iterator, Sequence

import attrs
import torch
from torch import Tensor

from flashrt.engine import ops
from flashrt.engine.buffers import RING, Buffers, LinearState
from flashrt.engine.config import ModelConfig
from flashrt.engine.linear import GROUP, head_linear, pad_rows
from flashrt.engine.mixers import FullMixer, LinearMixer, Mixer
from flashrt.engine.passes import BlockPass, Pass, RowsPass, store_in_ring
from flashrt.engine.weights import (
    FullAttentionWeights,
    LayerWeights,
    LinearAttentionWeights,
    MlpWeights,
    ModelWeights,
)


@attrs.frozen(eq=False)
class Layer:
    """x + mixer(norm(x)), then x + mlp(norm(x))."""

    mixer: Mixer
    mlp: MlpWeights
    input_scale: Tensor
    """[h] float32."""
    post_scale: Tensor
    """[h] float32."""
    eps: float

    def forward(self, x: Tensor, go: Pass) -> Tensor:
        """x [T, h] -> [T, h]."""
        x = x + self.mixer.forward(ops.rms_norm(x, self.input_scale, self.eps), go)
        y = ops.rms_norm(x, self.post_scale, self.eps)
        y = ops.silu_mul(go.linear(y, self.mlp.gate_up))  # [T, I]
        return x + go.linear(y, self.mlp.down)


class Model:
    """Weights and buffers wired together. Extends the buffers; knows no lengths but those given."""

    def __init__(self, config: ModelConfig, weights: ModelWeights, buffers: Buffers) -> None:
        self.config = config
        self.weights = weights
        self.buffers = buffers
        self.device = weights.embed.device
        self.layers = tuple(_layers(config, weights, buffers))
        self.final_scale = 1 + weights.final_norm.float()

    def rows(self, ids: Sequence[int], position: int, anchor: int) -> None:
        """Process few rows at `position`, row-invariantly. `anchor`: the newest chunk stored."""
        for lo in range(0, len(ids), GROUP):
            part = ids[lo : lo + GROUP]
            self._run(part, RowsPass(position + lo, len(part), anchor))

    def block(self, ids: Sequence[int], position: int) -> None:
        """Process all rows at `position` together."""
        self._run(ids, BlockPass(position, len(ids)))

    def logits(self, position: int) -> Tensor:
        """[V] float32 after `position` tokens, from the last hidden row, row-invariantly."""
        last = self.buffers.hidden[(position - 1) % RING]
        return head_linear(pad_rows(last[None], GROUP), self.weights.lm_head)[0]

    def _run(self, ids: Sequence[int], go: Pass) -> None:
        rows = go.pad(torch.tensor(ids, device=self.device))
        x = self.weights.embed[rows]  # [T, h]
        for layer in self.layers:
            x = layer.forward(x, go)
        start = max(0, go.count - RING)
        # In the family for few rows all of the group is normed: its shape is fixed.
        hidden = ops.rms_norm(x[start:], self.final_scale, self.config.rms_eps)
        store_in_ring(self.buffers.hidden, go.position + start, hidden[: go.count - start])


def _layers(config: ModelConfig, weights: ModelWeights, buffers: Buffers) -> Iterator[Layer]:
    """Each layer with its part of the buffers."""
    rows, linear, full = buffers.kv.shape[3], iter(buffers.linear), iter(buffers.kv)
    device = weights.embed.device
    # One group of dead rows may stand beyond the last position.
    tables = ops.rotary_tables(rows + GROUP, config.rotary_dim, config.rope_theta, device)
    for layer in weights.layers:
        yield Layer(
            _mixer(config, layer, linear, full, tables),
            layer.mlp,
            1 + layer.input_norm.float(),
            1 + layer.post_norm.float(),
            config.rms_eps,
        )


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
