"""The two token mixers: gated delta rule layers and gated attention layers.

T rows; H query, Hkv key / value heads of d; Hk key, Hv value heads of dk, dv in the linear layers.
"""

import attrs
import torch
from torch import Tensor

from flashrt.engine import ops
from flashrt.engine.buffers import LinearState
from flashrt.engine.config import ModelConfig
from flashrt.engine.delta import DeltaInputs
from flashrt.engine.kvcache import stored
from flashrt.engine.passes import Pass, ring_index, store_in_ring
from flashrt.engine.weights import FullAttentionWeights, LinearAttentionWeights


@attrs.frozen(eq=False)
class LinearMixer:
    """projection -> causal convolution -> gated delta rule -> gated norm -> projection."""

    config: ModelConfig
    weights: LinearAttentionWeights
    state: LinearState
    taps: Tensor
    """[kernel, C] float32."""
    rate: Tensor
    """[Hv] float32, exp(A_log)."""
    norm: Tensor
    """[dv] float32."""

    @classmethod
    def of(
        cls, config: ModelConfig, weights: LinearAttentionWeights, state: LinearState
    ) -> "LinearMixer":
        """With what is derived from the weights once."""
        taps = weights.conv.float().T.contiguous()
        return cls(config, weights, state, taps, weights.A_log.exp(), weights.norm.float())

    def forward(self, x: Tensor, go: Pass) -> Tensor:
        """x [T, h] -> [T, h]; extends window, convolution rows and, in a block, anchors."""
        c = self.config
        keys, heads, values = c.linear_key_heads, c.linear_value_heads, c.value_width
        parts = (c.conv_width, values, heads, heads)
        raw, z, b, a = go.linear(x, self.weights.in_proj).split(parts, dim=-1)

        widths = (keys * c.linear_key_dim, keys * c.linear_key_dim, values)
        q, k, v = self.convolve(raw, go).split(widths, dim=-1)
        rows = DeltaInputs(
            q=q.unflatten(-1, (keys, -1)),  # [T, Hk, dk]
            k=k.unflatten(-1, (keys, -1)),  # [T, Hk, dk]
            v=v.unflatten(-1, (heads, -1)),  # [T, Hv, dv]
            beta=b.float().sigmoid(),  # [T, Hv]
            g=ops.log_decay(a, self.weights.dt_bias, self.rate),  # [T, Hv]
        )
        o = go.delta(self.state, rows)  # [T, Hv, dv]
        y = ops.gated_norm(o, z.unflatten(-1, (heads, -1)), self.norm, c.rms_eps)
        return go.linear(y.flatten(1), self.weights.out_proj)

    def convolve(self, raw: Tensor, go: Pass) -> Tensor:
        """raw [T, C] -> [T, C], after the rows that came before; keeps the raw rows."""
        before = ring_index(go.position - len(self.taps) + 1, go.position, raw.device)
        ring = self.state.raw
        convolved = ops.causal_conv(torch.cat((ring[before], raw)), self.taps)
        store_in_ring(ring, go.position, raw[: go.count])
        return convolved


@attrs.frozen(eq=False)
class FullMixer:
    """Attention with normed and partly rotated heads, and a sigmoid gate per head dim."""

    config: ModelConfig
    weights: FullAttentionWeights
    kv: Tensor
    """[2, Hkv, rows, d]."""
    cos: Tensor
    """[rows, 1, rotary/2] float32."""
    sin: Tensor
    """[rows, 1, rotary/2] float32."""
    q_scale: Tensor
    """[d] float32, 1 + q_norm."""
    k_scale: Tensor
    """[d] float32, 1 + k_norm."""

    @classmethod
    def of(
        cls,
        config: ModelConfig,
        weights: FullAttentionWeights,
        kv: Tensor,
        tables: tuple[Tensor, Tensor],
    ) -> "FullMixer":
        """With what is derived from the weights once."""
        scales = 1 + weights.q_norm.float(), 1 + weights.k_norm.float()
        return cls(config, weights, kv, *tables, *scales)

    def forward(self, x: Tensor, go: Pass) -> Tensor:
        """x [T, h] -> [T, h]; extends K and V."""
        c = self.config
        widths = (2 * c.num_heads * c.head_dim, *(2 * [c.num_kv_heads * c.head_dim]))
        queries, k, v = go.linear(x, self.weights.qkv_proj).split(widths, dim=-1)
        self.store(k, v, go)
        return self.answer(queries, go)

    def store(self, k: Tensor, v: Tensor, go: Pass) -> None:
        """Extend K and V by k, v [T, Hkv*d] as projected, in the dtype they are kept in."""
        c, new = self.config, slice(go.position, go.position + go.count)
        k = self._turned(k.unflatten(-1, (c.num_kv_heads, -1)), self.k_scale, go)  # [T, Hkv, d]
        v = v.unflatten(-1, (c.num_kv_heads, -1))
        for part, rows in enumerate((k, v)):
            self.kv[part, :, new] = stored(rows[: go.count], self.kv.dtype).transpose(0, 1)

    def answer(self, queries: Tensor, go: Pass) -> Tensor:
        """Queries with their gates [T, H*2*d] as projected -> [T, h]; K and V are there."""
        q, gate = queries.unflatten(-1, (self.config.num_heads, 2, -1)).unbind(2)  # [T, H, d] each
        o = go.attend(self._turned(q, self.q_scale, go), self.kv)  # [T, H, d]
        return go.linear(ops.sigmoid_gate(o, gate).flatten(1), self.weights.o_proj)

    def _turned(self, heads: Tensor, scale: Tensor, go: Pass) -> Tensor:
        """Normed and rotated. Dead rows at the end of the window are, like any other row."""
        at = slice(go.position, go.position + len(heads))
        normed = ops.rms_norm(heads, scale, self.config.rms_eps)
        return ops.rotate(normed, self.cos[at], self.sin[at])


Mixer = LinearMixer | FullMixer
