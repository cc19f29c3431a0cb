"""Which tensors a checkpoint must hold, and where in the fused weights each of them belongs."""

import re
from collections.abc import Collection, Mapping

import attrs
import torch
from torch import Tensor

from flashrt.engine.config import FULL, LINEAR, ModelConfig, MoeConfig
from flashrt.engine.headers import MTP_PREFIX
from flashrt.engine.weights import (
    FfnWeights,
    FullAttentionWeights,
    LayerWeights,
    LinearAttentionWeights,
    MlpWeights,
    ModelWeights,
    MoeWeights,
    MtpWeights,
)

HEAD = "lm_head.weight"
EMBEDDING = "model.embed_tokens.weight"
ONE_EXPERT = re.compile(r"(.*\.)mlp\.experts\.\d+\.")


@attrs.frozen
class Layout:
    """What a checkpoint may choose freely."""

    mtp: bool = False
    """Whether the MTP layer is there."""
    split_experts: frozenset[str] = frozenset()
    """Prefixes of the layers that store each routed expert by itself."""


def layout_of(keys: Collection[str]) -> Layout:
    """The layout of a checkpoint with these tensors; what it lacks is found when it is checked."""
    split = frozenset(found[1] for key in keys if (found := ONE_EXPERT.match(key)))
    return Layout(any(key.startswith(MTP_PREFIX) for key in keys), split)


def allocate(
    config: ModelConfig,
    device: str | torch.device,
    dtype: torch.dtype,
    layout: Layout = Layout(),
) -> tuple[ModelWeights, dict[str, Tensor]]:
    """Uninitialised weights, and for each checkpoint tensor the contiguous view that it fills.

    The views have the shapes that the checkpoint's tensors must have.
    """
    h = config.hidden_size
    place = _Place(config, layout, torch.device(device), dtype)
    embed = place.own(EMBEDDING, config.vocab_size, h)
    layers = tuple(
        _layer(place, f"model.layers.{i}.", kind) for i, kind in enumerate(config.layer_types)
    )
    final_norm = place.own("model.norm.weight", h)
    head = embed if config.tied_embeddings else place.own(HEAD, config.vocab_size, h)
    mtp = _mtp(place) if layout.mtp else None
    return ModelWeights(embed, layers, final_norm, head, checksum="", mtp=mtp), place.slots


@attrs.define(eq=False)
class _Place:
    """Allocates tensors and notes which checkpoint tensor fills which part of them."""

    config: ModelConfig
    layout: Layout
    device: torch.device
    dtype: torch.dtype
    slots: dict[str, Tensor] = attrs.field(factory=dict)

    def empty(self, *shape: int, dtype: torch.dtype | None = None) -> Tensor:
        """A tensor that nothing fills yet."""
        return torch.empty(shape, device=self.device, dtype=dtype or self.dtype)

    def own(self, key: str, *shape: int, dtype: torch.dtype | None = None) -> Tensor:
        """A tensor that one checkpoint tensor fills."""
        self.slots[key] = self.empty(*shape, dtype=dtype)
        return self.slots[key]

    def fused(
        self, parts: Mapping[str, int], width: int, dtype: torch.dtype | None = None
    ) -> Tensor:
        """A matrix [sum of rows, width]; each named part fills its rows, in order."""
        whole = self.empty(sum(parts.values()), width, dtype=dtype)
        self.slots.update(zip(parts, torch.split(whole, list(parts.values())), strict=True))
        return whole


def _layer(place: _Place, at: str, kind: str) -> LayerWeights:
    config = place.config
    h, moe = config.hidden_size, config.moe
    ffn: FfnWeights
    if moe:
        ffn = _moe(place, moe, at)
    else:
        ffn = _mlp(place, at + "mlp.", config.intermediate_size)
    return LayerWeights(
        input_norm=place.own(at + "input_layernorm.weight", h),
        post_norm=place.own(at + "post_attention_layernorm.weight", h),
        mixer=(_linear if kind == LINEAR else _full)(place, config, at),
        mlp=ffn,
    )


def _mtp(place: _Place) -> MtpWeights:
    at, h = MTP_PREFIX, place.config.hidden_size
    return MtpWeights(
        fc=place.own(at + "fc.weight", h, 2 * h),
        pre_fc_norm_embedding=place.own(at + "pre_fc_norm_embedding.weight", h),
        pre_fc_norm_hidden=place.own(at + "pre_fc_norm_hidden.weight", h),
        norm=place.own(at + "norm.weight", h),
        layer=_layer(place, at + "layers.0.", FULL),
    )


def _mlp(place: _Place, at: str, inner: int) -> MlpWeights:
    h = place.config.hidden_size
    rows = {at + "gate_proj.weight": inner, at + "up_proj.weight": inner}
    return MlpWeights(place.fused(rows, h), place.own(at + "down_proj.weight", h, inner))


def _moe(place: _Place, moe: MoeConfig, layer: str) -> MoeWeights:
    at, h, inner = layer + "mlp.", place.config.hidden_size, moe.intermediate_size
    rows = {at + "gate.weight": moe.experts, at + "shared_expert_gate.weight": 1}
    gate_up = place.empty(moe.experts, 2 * inner, h)
    down = place.empty(moe.experts, h, inner)
    if layer in place.layout.split_experts:
        for e in range(moe.experts):
            gate, up = gate_up[e].split(inner)
            parts = {"gate": gate, "up": up, "down": down[e]}
            names = {f"{at}experts.{e}.{part}_proj.weight": slot for part, slot in parts.items()}
            place.slots.update(names)
    else:
        place.slots |= {at + "experts.gate_up_proj": gate_up, at + "experts.down_proj": down}
    return MoeWeights(
        router=place.fused(rows, h, torch.float32),
        gate_up=gate_up,
        down=down,
        shared=_mlp(place, at + "shared_expert.", moe.shared_intermediate_size),
        experts_per_row=moe.experts_per_row,
    )


def _linear(place: _Place, config: ModelConfig, layer: str) -> LinearAttentionWeights:
    at, h = layer + "linear_attn.", config.hidden_size
    heads, values = config.linear_value_heads, config.value_width
    rows = {"qkv": config.conv_width, "z": values, "b": heads, "a": heads}
    conv = place.own(at + "conv1d.weight", config.conv_width, 1, config.conv_kernel)
    return LinearAttentionWeights(
        in_proj=place.fused({f"{at}in_proj_{part}.weight": n for part, n in rows.items()}, h),
        conv=conv.squeeze(1),
        A_log=place.own(at + "A_log", heads, dtype=torch.float32),
        dt_bias=place.own(at + "dt_bias", heads, dtype=torch.float32),
        norm=place.own(at + "norm.weight", config.linear_value_dim),
        out_proj=place.own(at + "out_proj.weight", h, values),
    )


def _full(place: _Place, config: ModelConfig, layer: str) -> FullAttentionWeights:
    at, h, d = layer + "self_attn.", config.hidden_size, config.head_dim
    kv = config.num_kv_heads * d
    rows = {"q": 2 * config.num_heads * d, "k": kv, "v": kv}
    return FullAttentionWeights(
        qkv_proj=place.fused({f"{at}{part}_proj.weight": n for part, n in rows.items()}, h),
        q_norm=place.own(at + "q_norm.weight", d),
        k_norm=place.own(at + "k_norm.weight", d),
        o_proj=place.own(at + "o_proj.weight", h, config.num_heads * d),
    )
