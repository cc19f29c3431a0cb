"""Which tensors a checkpoint must hold, and where in the fused weights each of them belongs."""

import itertools
import re
from collections.abc import Collection, Iterator, Mapping

import attrs
import torch
from torch import Tensor

from flashrt.engine.config import FULL, LINEAR, ModelConfig, MoeConfig
from flashrt.engine.forms import BLOCK, Form, FormSpec, empty, tensors
from flashrt.engine.headers import MTP_PREFIX
from flashrt.engine.matrix import Experts, Matrix, Packed, Part
from flashrt.engine.repack import spec_of
from flashrt.engine.spellings import StoredMatrix
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
    quantized: Mapping[str, StoredMatrix | FormSpec] = {}
    """By key, what stands for a matrix instead of a plain tensor, or the form it shall have."""


@attrs.frozen(eq=False)
class Allocated:
    """Uninitialised weights, and what of them each thing in a checkpoint fills."""

    weights: ModelWeights
    slots: dict[str, Tensor]
    """By key, the contiguous view that a plain tensor fills, of the shape that it must have."""
    forms: dict[str, Form]
    """By key, the part that a quantized matrix fills."""

    @property
    def nbytes(self) -> int:
        """Of everything."""
        parts = (tensor for form in self.forms.values() for tensor in tensors(form))
        return sum(tensor.nbytes for tensor in itertools.chain(self.slots.values(), parts))


def layout_of(keys: Collection[str], quantized: Mapping[str, StoredMatrix] | None = None) -> Layout:
    """The layout of a checkpoint with these tensors; what it lacks is found when it is checked."""
    split = frozenset(found[1] for key in keys if (found := ONE_EXPERT.match(key)))
    return Layout(any(key.startswith(MTP_PREFIX) for key in keys), split, quantized or {})


def allocate(
    config: ModelConfig,
    device: str | torch.device,
    dtype: torch.dtype,
    layout: Layout = Layout(),
) -> tuple[ModelWeights, dict[str, Tensor]]:
    """Uninitialised weights, and for each checkpoint tensor the contiguous view that it fills.

    The views have the shapes that the checkpoint's tensors must have.
    """
    allocated = allocate_all(config, device, dtype, layout)
    return allocated.weights, allocated.slots


def allocate_all(
    config: ModelConfig, device: str | torch.device, dtype: torch.dtype, layout: Layout
) -> Allocated:
    """The same, with quantized matrices. Raises CannotServe where one is stored in an odd way."""
    h = config.hidden_size
    place = _Place(config, layout, torch.device(device), dtype)
    embed = place.own(EMBEDDING, config.vocab_size, h)
    layers = tuple(
        _layer(place, f"model.layers.{i}.", kind) for i, kind in enumerate(config.layer_types)
    )
    final_norm = place.own("model.norm.weight", h)
    # A quantizer may have given a tied model a head of its own.
    tied = config.tied_embeddings and HEAD not in layout.quantized
    head: Matrix = embed if tied else place.matrix({HEAD: config.vocab_size}, h)
    mtp = _mtp(place) if layout.mtp else None
    weights = ModelWeights(embed, layers, final_norm, head, checksum="", mtp=mtp)
    return Allocated(weights, place.slots, place.forms)


@attrs.define(eq=False)
class _Place:
    """Allocates tensors and notes which checkpoint tensor fills which part of them."""

    config: ModelConfig
    layout: Layout
    device: torch.device
    dtype: torch.dtype
    slots: dict[str, Tensor] = attrs.field(factory=dict)
    forms: dict[str, Form] = attrs.field(factory=dict)

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

    def matrix(
        self, parts: Mapping[str, int], width: int, *, even: bool = False, wide: bool = True
    ) -> Matrix:
        """The same, of what may be quantized, each part by itself. `even`: they are of one size,
        so blocks of scales may begin anew in each, and one form holds them all. `wide`: see
        `FormSpec`."""
        if not self.layout.quantized.keys() & parts.keys():
            return self.fused(parts, width)
        specs = self._specs(parts, width, wide=wide)
        if even and (rows := next(iter(parts.values()))) % BLOCK:
            specs = {name: spec and attrs.evolve(spec, period=rows) for name, spec in specs.items()}
        made: list[Part] = []
        for spec, names in _runs(parts, specs):
            of_run = {name: parts[name] for name in names}
            made.append(self._form(spec, of_run, width) if spec else self.fused(of_run, width))
        return Packed(tuple(made), self.dtype)

    def _specs(
        self, parts: Mapping[str, int], width: int, *, wide: bool
    ) -> dict[str, FormSpec | None]:
        found = {name: self.layout.quantized.get(name) for name in parts}
        specs = {
            name: spec_of(one, parts[name], width) if isinstance(one, StoredMatrix) else one
            for name, one in found.items()
        }
        return {name: spec and attrs.evolve(spec, wide=wide) for name, spec in specs.items()}

    def _form(self, spec: FormSpec, parts: Mapping[str, int], width: int) -> Form:
        """Neighbours in one form, so that a product goes over them once."""
        whole, start = empty(spec, sum(parts.values()), width, self.device), 0
        for name, rows in parts.items():
            self.forms[name] = whole.cut(start, start + rows)
            start += rows
        return whole


def _runs(
    parts: Mapping[str, int], specs: Mapping[str, FormSpec | None]
) -> Iterator[tuple[FormSpec | None, list[str]]]:
    """Neighbours that can lie in the same tensors."""
    run: list[str] = []
    rows = 0
    for name, spec in specs.items():
        if run and (spec != specs[run[0]] or (spec and rows % spec.aligned_rows)):
            yield specs[run[0]], run
            run, rows = [], 0
        run.append(name)
        rows += parts[name]
    if run:
        yield specs[run[0]], run


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
        fc=place.matrix({at + "fc.weight": h}, 2 * h),
        pre_fc_norm_embedding=place.own(at + "pre_fc_norm_embedding.weight", h),
        pre_fc_norm_hidden=place.own(at + "pre_fc_norm_hidden.weight", h),
        norm=place.own(at + "norm.weight", h),
        layer=_layer(place, at + "layers.0.", FULL),
    )


def _mlp(place: _Place, at: str, inner: int, *, expert: bool = False) -> MlpWeights:
    h = place.config.hidden_size
    rows = {at + "gate_proj.weight": inner, at + "up_proj.weight": inner}
    gate_up = place.matrix(rows, h, even=expert)
    return MlpWeights(gate_up, place.matrix({at + "down_proj.weight": h}, inner, even=expert))


def _moe(place: _Place, moe: MoeConfig, layer: str) -> MoeWeights:
    at, h = layer + "mlp.", place.config.hidden_size
    rows = {at + "gate.weight": moe.experts, at + "shared_expert_gate.weight": 1}
    gate_up, down = _experts(place, moe, layer, at + "experts.")
    return MoeWeights(
        router=place.fused(rows, h, torch.float32),
        gate_up=gate_up,
        down=down,
        shared=_mlp(place, at + "shared_expert.", moe.shared_intermediate_size, expert=True),
        experts_per_row=moe.experts_per_row,
    )


def _experts(
    place: _Place, moe: MoeConfig, layer: str, at: str
) -> tuple[Tensor | Experts, Tensor | Experts]:
    """Gate and up projections [E, 2*I, h], and down projections [E, h, I]."""
    h, inner = place.config.hidden_size, moe.intermediate_size
    names = [
        {part: f"{at}{e}.{part}_proj.weight" for part in ("gate", "up", "down")}
        for e in range(moe.experts)
    ]
    if place.layout.quantized.keys() & {key for one in names for key in one.values()}:
        gates = {key: inner for one in names for key in (one["gate"], one["up"])}
        downs = {one["down"]: h for one in names}
        return _stack(place, gates, h, moe.experts), _stack(place, downs, inner, moe.experts)
    gate_up = place.empty(moe.experts, 2 * inner, h)
    down = place.empty(moe.experts, h, inner)
    if layer in place.layout.split_experts:
        for e, keys in enumerate(names):
            gate, up = gate_up[e].split(inner)
            place.slots |= {keys["gate"]: gate, keys["up"]: up, keys["down"]: down[e]}
    else:
        place.slots |= {at + "gate_up_proj": gate_up, at + "down_proj": down}
    return gate_up, down


def _stack(place: _Place, rows: Mapping[str, int], width: int, experts: int) -> Tensor | Experts:
    """Of experts some of which are quantized; those of the other projection may be plain."""
    count = sum(rows.values()) // experts
    stack = place.matrix(rows, width, even=True, wide=False)
    if isinstance(stack, Tensor):
        return stack.view(experts, count, width)
    return Experts(stack, count)


def _linear(place: _Place, config: ModelConfig, layer: str) -> LinearAttentionWeights:
    at, h = layer + "linear_attn.", config.hidden_size
    heads, values = config.linear_value_heads, config.value_width
    rows = {"qkv": config.conv_width, "z": values, "b": heads, "a": heads}
    conv = place.own(at + "conv1d.weight", config.conv_width, 1, config.conv_kernel)
    return LinearAttentionWeights(
        in_proj=place.matrix({f"{at}in_proj_{part}.weight": n for part, n in rows.items()}, h),
        conv=conv.squeeze(1),
        A_log=place.own(at + "A_log", heads, dtype=torch.float32),
        dt_bias=place.own(at + "dt_bias", heads, dtype=torch.float32),
        norm=place.own(at + "norm.weight", config.linear_value_dim),
        out_proj=place.matrix({at + "out_proj.weight": h}, values),
    )


def _full(place: _Place, config: ModelConfig, layer: str) -> FullAttentionWeights:
    at, h, d = layer + "self_attn.", config.hidden_size, config.head_dim
    kv = config.num_kv_heads * d
    rows = {"q": 2 * config.num_heads * d, "k": kv, "v": kv}
    return FullAttentionWeights(
        qkv_proj=place.matrix({f"{at}{part}_proj.weight": n for part, n in rows.items()}, h),
        q_norm=place.own(at + "q_norm.weight", d),
        k_norm=place.own(at + "k_norm.weight", d),
        o_proj=place.matrix({at + "o_proj.weight": h}, config.num_heads * d),
    )
