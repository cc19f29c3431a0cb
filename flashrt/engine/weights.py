"""The weights of one model, as the forward pass reads them.

All tensors lie on the engine's device. Matrices, embeddings, norms and convolutions have the
engine's dtype; `A_log`, `dt_bias` and routers are float32 whatever the checkpoint stores. Matrices
are [out, in]. Every norm but the linear layer's gated one is stored as an offset from 1.
"""

import attrs
from torch import Tensor


@attrs.frozen(eq=False)
class LinearAttentionWeights:
    """A gated delta rule layer. Hk, Hv heads of dk, dv; C = 2*Hk*dk + Hv*dv convolved channels."""

    in_proj: Tensor
    """[C + Hv*dv + Hv + Hv, h]: rows q | k | v (each head-major), then z, b, a."""
    conv: Tensor
    """[C, kernel]; the last tap meets the newest row."""
    A_log: Tensor
    """[Hv] float32."""
    dt_bias: Tensor
    """[Hv] float32."""
    norm: Tensor
    """[dv], a plain weight shared by all heads."""
    out_proj: Tensor
    """[h, Hv*dv]."""


@attrs.frozen(eq=False)
class FullAttentionWeights:
    """A gated attention layer. H query heads and Hkv key / value heads of d."""

    qkv_proj: Tensor
    """[H*2*d + 2*Hkv*d, h]: per query head its q rows, then its gate rows; then k, then v."""
    q_norm: Tensor
    """[d], offset from 1."""
    k_norm: Tensor
    """[d], offset from 1."""
    o_proj: Tensor
    """[h, H*d]."""


@attrs.frozen(eq=False)
class MlpWeights:
    """down(silu(gate x) * (up x))."""

    gate_up: Tensor
    """[2*I, h]: gate rows first."""
    down: Tensor
    """[h, I]."""


@attrs.frozen(eq=False)
class MoeWeights:
    """A shared expert, through a gate, and the weighted sum of a few of E routed experts."""

    router: Tensor
    """[E + 1, h] float32: a row per expert, then the gate of the shared one."""
    gate_up: Tensor
    """[E, 2*I, h]: gate rows first."""
    down: Tensor
    """[E, h, I]."""
    shared: MlpWeights
    experts_per_row: int
    """How many of the routed experts serve a row."""


FfnWeights = MlpWeights | MoeWeights


@attrs.frozen(eq=False)
class LayerWeights:
    """One decoder layer."""

    input_norm: Tensor
    """[h], offset from 1."""
    post_norm: Tensor
    """[h], offset from 1."""
    mixer: LinearAttentionWeights | FullAttentionWeights
    mlp: FfnWeights


@attrs.frozen(eq=False)
class MtpWeights:
    """The layer that drafts the token after the next one. Embedding and head are the model's."""

    fc: Tensor
    """[h, 2*h]: the columns of the embedding first, then those of the hidden row."""
    pre_fc_norm_embedding: Tensor
    """[h], offset from 1."""
    pre_fc_norm_hidden: Tensor
    """[h], offset from 1."""
    norm: Tensor
    """[h], offset from 1."""
    layer: LayerWeights
    """Its mixer is gated attention."""


@attrs.frozen(eq=False)
class ModelWeights:
    """A whole model. `lm_head` is the same tensor as `embed` where the checkpoint ties them."""

    embed: Tensor
    """[V, h]."""
    layers: tuple[LayerWeights, ...]
    final_norm: Tensor
    """[h], offset from 1."""
    lm_head: Tensor
    """[V, h]."""
    checksum: str
    """Of the names and bytes of every tensor used, however they are spread over files."""
    mtp: MtpWeights | None = None
    """None where the checkpoint has no such layer."""
