"""The weights of one model, as the forward pass reads them.

All tensors lie on the engine's device. Matrices, embeddings, norms and convolutions have the
engine's dtype; `A_log`, `dt_bias` and routers are float32 whatever the checkpoint stores. Matrices
are [out, in]; all but embedding and router may be packed, in the forms of their checkpoint. Every
norm but the linear layer's gated one is stored as an offset from 1.
"""

from collections.abc import Iterator
from typing import Any

import attrs
from torch import Tensor

from flashrt.engine.matrix import Experts, Matrix, Packed


@attrs.frozen(eq=False)
class LinearAttentionWeights:
    """A gated delta rule layer. Hk, Hv heads of dk, dv; C = 2*Hk*dk + Hv*dv convolved channels."""

    in_proj: Matrix
    """[C + Hv*dv + Hv + Hv, h]: rows q | k | v (each head-major), then z, b, a."""
    conv: Tensor
    """[C, kernel]; the last tap meets the newest row."""
    A_log: Tensor
    """[Hv] float32."""
    dt_bias: Tensor
    """[Hv] float32."""
    norm: Tensor
    """[dv], a plain weight shared by all heads."""
    out_proj: Matrix
    """[h, Hv*dv]."""


@attrs.frozen(eq=False)
class FullAttentionWeights:
    """A gated attention layer. H query heads and Hkv key / value heads of d."""

    qkv_proj: Matrix
    """[H*2*d + 2*Hkv*d, h]: per query head its q rows, then its gate rows; then k, then v."""
    q_norm: Tensor
    """[d], offset from 1."""
    k_norm: Tensor
    """[d], offset from 1."""
    o_proj: Matrix
    """[h, H*d]."""


@attrs.frozen(eq=False)
class MlpWeights:
    """down(silu(gate x) * (up x))."""

    gate_up: Matrix
    """[2*I, h]: gate rows first."""
    down: Matrix
    """[h, I]."""


@attrs.frozen(eq=False)
class MoeWeights:
    """A shared expert, through a gate, and the weighted sum of a few of E routed experts."""

    router: Tensor
    """[E + 1, h] float32: a row per expert, then the gate of the shared one."""
    gate_up: Tensor | Experts
    """[E, 2*I, h]: gate rows first."""
    down: Tensor | Experts
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

    fc: Matrix
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
    lm_head: Matrix
    """[V, h]."""
    checksum: str
    """Of the names and bytes of every tensor used, however they are spread over files."""
    mtp: MtpWeights | None = None
    """None where the checkpoint has no such layer."""

    @property
    def packed(self) -> bool:
        """Whether any matrix is in a quantized form."""
        return any(isinstance(value, Packed | Experts) for value in _leaves(self))


def _leaves(value: Any) -> Iterator[Any]:
    """Everything in nested weights that is no group of weights itself."""
    if isinstance(value, tuple):
        for one in value:
            yield from _leaves(one)
    elif attrs.has(type(value)) and not isinstance(value, Packed | Experts):
        for field in attrs.fields(type(value)):
            yield from _leaves(getattr(value, field.name))
    else:
        yield value
