"""The shape of a model, read from a checkpoint's config.json. Knows no torch.

Only `qwen3_5` models are understood, dense or a mixture of experts (`qwen3_5_moe`), alone
(`..._text`) or as the text part of a multimodal one. Anything that would make this engine compute
something else than the model's authors meant is refused by the name of its key.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import attrs

from flashrt.errors import CannotServe

LINEAR = "linear_attention"
FULL = "full_attention"

MOE_TYPES = ("qwen3_5_moe", "qwen3_5_moe_text")
SERVED_TYPES = ("qwen3_5", "qwen3_5_text", *MOE_TYPES)
SERVED_ARCHITECTURES = (
    "Qwen3_5ForConditionalGeneration",
    "Qwen3_5ForCausalLM",
    "Qwen3_5MoeForConditionalGeneration",
    "Qwen3_5MoeForCausalLM",
)

OTHER_TYPES = {
    "qwen4_exp": "another architecture (hyper-connections, sparse attention)",
    "qwen3_next": "the previous generation, with another weight layout",
}

# Key, the values that mean what this engine computes, and what other values would need.
FIXED_KEYS: tuple[tuple[str, tuple[Any, ...], str], ...] = (
    ("hidden_act", ("silu", "swish", None), "other activation than silu"),
    ("attention_bias", (False, None), "bias tensors"),
    ("attn_output_gate", (True, None), "attention without output gates"),
    ("output_gate_type", ("swish", "silu", None), "other gate than silu in its linear layers"),
    ("use_sliding_window", (False, None), "a sliding attention window"),
    ("mtp_num_hidden_layers", (0, 1, None), "drafting with other than one MTP layer"),
    ("mtp_use_dedicated_embeddings", (False, None), "MTP layer with embeddings of its own"),
    ("norm_topk_prob", (True, None), "experts whose shares do not add up to 1"),
    ("decoder_sparse_step", (1, None), "mixture of experts in some layers only"),
    ("mlp_only_layers", ([], None), "mixture of experts in some layers only"),
)


@attrs.frozen
class MoeConfig:
    """The feed-forward half of every layer, where it is a mixture of experts."""

    experts: int
    """Routed ones; a shared one stands beside them."""
    experts_per_row: int
    intermediate_size: int
    """Of one routed expert."""
    shared_intermediate_size: int


@attrs.frozen
class ModelConfig:
    """The numbers that fix every tensor's shape and the forward pass."""

    vocab_size: int
    hidden_size: int
    intermediate_size: int
    """0 in a mixture of experts."""
    layer_types: tuple[str, ...]
    """Per layer LINEAR or FULL."""
    num_heads: int
    num_kv_heads: int
    head_dim: int
    rotary_dim: int
    """How many of the first dims of a head are rotated."""
    rope_theta: float
    linear_key_heads: int
    linear_value_heads: int
    linear_key_dim: int
    linear_value_dim: int
    conv_kernel: int
    rms_eps: float
    tied_embeddings: bool
    max_positions: int
    mtp_layers: int
    """As announced; the checkpoint may still lack their tensors."""
    moe: MoeConfig | None = None
    """None in a dense model."""

    @property
    def conv_width(self) -> int:
        """Channels of the convolution: all q, k and v rows of a linear layer."""
        return 2 * self.linear_key_heads * self.linear_key_dim + self.value_width

    @property
    def value_width(self) -> int:
        """All value heads of a linear layer side by side."""
        return self.linear_value_heads * self.linear_value_dim


def read_config(folder: Path) -> ModelConfig:
    """The config of the checkpoint in `folder`. Raises CannotServe, naming key and value."""
    file = folder / "config.json"
    try:
        raw = json.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise CannotServe(f"{file} cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise CannotServe(f"{file} is not JSON: {error}") from error
    if not isinstance(raw, dict):
        raise CannotServe(f"{file} holds no JSON object")
    return parse_config(raw, str(file))


def parse_config(raw: Mapping[str, Any], source: str = "config.json") -> ModelConfig:
    """The config in the JSON object `raw`; `source` names it in messages. Raises CannotServe."""
    _check_architecture(raw, source)
    text = raw.get("text_config", raw)
    if not isinstance(text, Mapping):
        raise CannotServe(f"{source}: text_config is {text!r}, not an object")
    if text is not raw:
        _check_architecture(text, f"{source}: text_config")
    for key, known, needs in FIXED_KEYS:
        if text.get(key) not in known:
            raise _odd(source, key, text[key], f"this engine has no {needs}")
    return _Reader(source, raw, text).config()


def _check_architecture(raw: Mapping[str, Any], source: str) -> None:
    kind = raw.get("model_type")
    if kind not in SERVED_TYPES:
        known = OTHER_TYPES.get(str(kind), "an architecture that this engine does not know")
        raise CannotServe(
            f"{source}: model_type = {kind!r} is {known}; served are {', '.join(SERVED_TYPES)}"
        )
    names = raw.get("architectures")
    if names and not set(names) & set(SERVED_ARCHITECTURES):
        raise CannotServe(
            f"{source}: architectures = {names!r} is no text-generating model; "
            f"served are {', '.join(SERVED_ARCHITECTURES)}"
        )


def _odd(source: str, key: str, value: Any, why: str) -> CannotServe:
    return CannotServe(f"{source}: {key} = {value!r}: {why}")


@attrs.frozen
class _Reader:
    """Reads one config: `text` describes the language model, `raw` is what holds it."""

    source: str
    raw: Mapping[str, Any]
    text: Mapping[str, Any]

    def config(self) -> ModelConfig:
        """Everything, checked."""
        moe = self.moe()
        head_dim = self.count("head_dim")
        rope = self.rope()
        config = ModelConfig(
            vocab_size=self.count("vocab_size"),
            hidden_size=self.count("hidden_size"),
            intermediate_size=0 if moe else self.count("intermediate_size"),
            layer_types=self.layer_types(),
            num_heads=self.count("num_attention_heads"),
            num_kv_heads=self.count("num_key_value_heads"),
            head_dim=head_dim,
            rotary_dim=self.rotary_dim(rope, head_dim),
            rope_theta=self.positive("rope_theta", rope.get("rope_theta")),
            linear_key_heads=self.count("linear_num_key_heads"),
            linear_value_heads=self.count("linear_num_value_heads"),
            linear_key_dim=self.count("linear_key_head_dim"),
            linear_value_dim=self.count("linear_value_head_dim"),
            conv_kernel=self.count("linear_conv_kernel_dim", least=2),
            rms_eps=self.positive("rms_norm_eps", self.text.get("rms_norm_eps")),
            tied_embeddings=self.tied(),
            max_positions=self.count("max_position_embeddings"),
            mtp_layers=self.count("mtp_num_hidden_layers", least=0, missing=0),
            moe=moe,
        )
        self.divides("num_key_value_heads", "num_attention_heads")
        self.divides("linear_num_key_heads", "linear_num_value_heads")
        return config

    def moe(self) -> MoeConfig | None:
        """The experts of a model whose type says that it has some."""
        kind, experts = self.text["model_type"], self.text.get("num_experts")
        if kind not in MOE_TYPES:
            if experts:
                raise _odd(self.source, "num_experts", experts, f"but model_type is {kind!r}")
            return None
        moe = MoeConfig(
            experts=self.count("num_experts"),
            experts_per_row=self.count("num_experts_per_tok"),
            intermediate_size=self.count("moe_intermediate_size"),
            shared_intermediate_size=self.count("shared_expert_intermediate_size"),
        )
        if moe.experts_per_row > moe.experts:
            raise _odd(
                self.source,
                "num_experts_per_tok",
                moe.experts_per_row,
                f"there are only num_experts = {moe.experts}",
            )
        return moe

    def count(self, key: str, *, least: int = 1, missing: int | None = None) -> int:
        """An integer of at least `least`; `missing` is what its absence means, if anything."""
        value = self.text.get(key, missing)
        if type(value) is not int or value < least:
            if value is None:
                raise CannotServe(f"{self.source}: {key} is missing")
            raise _odd(self.source, key, value, f"an integer of at least {least} is needed")
        return value

    def positive(self, key: str, value: Any) -> float:
        """A number above 0."""
        if value is None:
            raise CannotServe(f"{self.source}: {key} is missing")
        if type(value) not in (int, float) or not 0 < value < float("inf"):
            raise _odd(self.source, key, value, "a number above 0 is needed")
        return float(value)

    def divides(self, few: str, many: str) -> None:
        """Check that groups of heads are equal in size."""
        if self.text[many] % self.text[few]:
            raise _odd(
                self.source, few, self.text[few], f"does not divide {many} = {self.text[many]}"
            )

    def layer_types(self) -> tuple[str, ...]:
        """From the explicit list, else every n-th layer has full attention."""
        layers = self.count("num_hidden_layers")
        listed = self.text.get("layer_types")
        if listed is None:
            interval = self.count("full_attention_interval", missing=4)
            return tuple(FULL if (i + 1) % interval == 0 else LINEAR for i in range(layers))
        if not isinstance(listed, list) or len(listed) != layers:
            size = len(listed) if isinstance(listed, list) else repr(listed)
            raise _odd(self.source, "layer_types", size, f"num_hidden_layers = {layers} are needed")
        for i, kind in enumerate(listed):
            if kind not in (LINEAR, FULL):
                raise _odd(self.source, f"layer_types[{i}]", kind, f"known are {LINEAR} and {FULL}")
        return tuple(listed)

    def rope(self) -> dict[str, Any]:
        """Rotary settings under either spelling, as one flat dict; only plain rotation passes."""
        flat = {
            key: self.text[key]
            for key in ("rope_theta", "partial_rotary_factor")
            if self.text.get(key) is not None
        }
        for spelling in ("rope_scaling", "rope_parameters"):
            inner = self.text.get(spelling)
            if inner is None:
                continue
            if not isinstance(inner, Mapping):
                raise _odd(self.source, spelling, inner, "an object is needed")
            self._check_rope_type(spelling, inner)
            flat.update({key: value for key, value in inner.items() if value is not None})
        return flat

    def _check_rope_type(self, spelling: str, inner: Mapping[str, Any]) -> None:
        for key in ("rope_type", "type"):
            kind: Literal["default"] | Any = inner.get(key, "default")
            if kind != "default":
                raise _odd(
                    self.source,
                    f"{spelling}.{key}",
                    kind,
                    "scaled rotary positions are not served; take the key out to serve the model "
                    "with its native context",
                )

    def rotary_dim(self, rope: Mapping[str, Any], head_dim: int) -> int:
        """The rotated part of a head: an even number of dims."""
        factor = self.positive("partial_rotary_factor", rope.get("partial_rotary_factor", 0.25))
        rotary = int(head_dim * factor)
        if not 0 < rotary <= head_dim or rotary % 2:
            raise _odd(
                self.source,
                "partial_rotary_factor",
                factor,
                f"would rotate {rotary} of head_dim = {head_dim} dims; an even part is needed",
            )
        return rotary

    def tied(self) -> bool:
        """Whether the output head is the embedding; both levels must agree where both say it."""
        outer = self.raw.get("tie_word_embeddings")
        inner = self.text.get("tie_word_embeddings")
        for value in (outer, inner):
            if value not in (True, False, None):
                raise _odd(self.source, "tie_word_embeddings", value, "true or false is needed")
        if None not in (outer, inner) and outer != inner:
            raise _odd(self.source, "tie_word_embeddings", outer, f"but text_config says {inner!r}")
        return bool(outer if inner is None else inner)
