"""Checkpoints written by transformers, changed by hand, and what must become of them."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor
from transformers import (
    Qwen3_5ForCausalLM,
    Qwen3_5ForConditionalGeneration,
    Qwen3_5MoeForCausalLM,
    Qwen3_5MoeForConditionalGeneration,
)
from transformers.models.qwen3_5.configuration_qwen3_5 import Qwen3_5Config, Qwen3_5TextConfig
from transformers.models.qwen3_5_moe.configuration_qwen3_5_moe import (
    Qwen3_5MoeConfig,
    Qwen3_5MoeTextConfig,
)

from flashrt.engine.checkpoint import LoadedCheckpoint, load_checkpoint
from flashrt.engine.config import LINEAR
from flashrt.engine.matrix import Experts, Packed, dense
from flashrt.engine.weights import (
    FullAttentionWeights,
    LayerWeights,
    LinearAttentionWeights,
    MlpWeights,
    MoeWeights,
)
from flashrt.errors import CannotServe

Tensors = dict[str, Tensor]
WEIGHTS = "model.safetensors"
EXPERTS = 3
NO_MTP = "no MTP weights in the checkpoint: plain decode"
"""What is said of a checkpoint without them."""


def text_config(*, moe: bool = False, **changes: Any) -> Qwen3_5TextConfig | Qwen3_5MoeTextConfig:
    """A very small model: 3 linear layers and a full one."""
    dense = {"intermediate_size": 48}
    experts = {
        "num_experts": EXPERTS,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": 24,
        "shared_expert_intermediate_size": 40,
    }
    shape = {
        "vocab_size": 96,
        "hidden_size": 32,
        "num_hidden_layers": 4,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 16,
        "linear_num_key_heads": 2,
        "linear_num_value_heads": 4,
        "linear_key_head_dim": 8,
        "linear_value_head_dim": 12,
        "rope_parameters": {
            "rope_type": "default",
            "rope_theta": 1e6,
            "partial_rotary_factor": 0.25,
        },
    }
    kind = Qwen3_5MoeTextConfig if moe else Qwen3_5TextConfig
    return kind(**{**shape, **(experts if moe else dense), **changes})


def saved(folder: Path, *, shards: str = "1GB", moe: bool = False, **changes: Any) -> Tensors:
    """A text-only checkpoint with noise in every tensor; returns the noise by name.

    transformers fuses experts in memory and stores each by itself.
    """
    model = (Qwen3_5MoeForCausalLM if moe else Qwen3_5ForCausalLM)(text_config(moe=moe, **changes))
    fill(model)
    model.save_pretrained(folder, max_shard_size=shards)
    return model.state_dict()


def saved_multimodal(folder: Path, tied: bool = False, *, moe: bool = False) -> Tensors:
    """The released form: a vision tower beside the language model."""
    vision = {
        "depth": 1,
        "hidden_size": 16,
        "intermediate_size": 16,
        "num_heads": 2,
        "out_hidden_size": 32,
        "num_position_embeddings": 16,
    }
    text = text_config(moe=moe, tie_word_embeddings=tied).to_dict()
    config = (Qwen3_5MoeConfig if moe else Qwen3_5Config)(
        text_config=text, vision_config=vision, tie_word_embeddings=tied
    )
    kind = Qwen3_5MoeForConditionalGeneration if moe else Qwen3_5ForConditionalGeneration
    model = kind(config)
    fill(model)
    model.save_pretrained(folder)
    return model.state_dict()


def fill(model: torch.nn.Module) -> None:
    """Noise everywhere, so no two tensors are alike."""
    generator = torch.Generator().manual_seed(0)
    for parameter in model.parameters():
        parameter.data.normal_(generator=generator)


def mtp_like(tensors: Tensors) -> Tensors:
    """Noise for an MTP layer: named and shaped as the full layer of `tensors`, and 4 others."""
    full = {name: t for name, t in tensors.items() if ".layers.3." in name}
    layer = {"mtp.layers.0." + name.partition(".layers.3.")[2]: t for name, t in full.items()}
    norms = ("mtp.pre_fc_norm_embedding", "mtp.pre_fc_norm_hidden", "mtp.norm")
    shapes = {**{f"{name}.weight": torch.empty(32) for name in norms}, **layer}
    shapes["mtp.fc.weight"] = torch.empty(32, 64)
    draw = torch.Generator().manual_seed(7)
    return {name: torch.randn(t.shape, generator=draw) for name, t in shapes.items()}


def fused(tensors: Tensors) -> Tensors:
    """The same with the experts of each layer in two tensors, as released checkpoints have them."""
    one = {name: t for name, t in tensors.items() if re.search(r"experts\.\d", name)}
    rest = {name: t for name, t in tensors.items() if name not in one}
    for at in {name.partition("experts.")[0] + "experts." for name in one}:
        parts = [
            [one[f"{at}{e}.{part}_proj.weight"] for e in range(EXPERTS)]
            for part in ("gate", "up", "down")
        ]
        gate, up, down = map(torch.stack, parts)
        rest |= {f"{at}gate_up_proj": torch.cat((gate, up), 1), f"{at}down_proj": down}
    return rest


def load(folder: Path, dtype: torch.dtype = torch.float32) -> LoadedCheckpoint:
    """On the CPU, without a bar."""
    return load_checkpoint(folder, device="cpu", dtype=dtype, progress=False)


def edit(folder: Path, change: Any) -> None:
    """Rewrite the single weights file after `change` was applied to its tensors."""
    tensors = load_file(folder / WEIGHTS)
    change(tensors)
    save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, folder / WEIGHTS)


def edit_config(folder: Path, **changes: Any) -> None:
    """Change keys of config.json."""
    file = folder / "config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), **changes}))


def refusal(folder: Path) -> str:
    """Why the checkpoint is refused."""
    with pytest.raises(CannotServe) as refused:
        load(folder)
    return str(refused.value)


def assert_holds(loaded: LoadedCheckpoint, stored: Tensors, at: str = "model.") -> None:
    """Every stored tensor lies in its place, bit for bit."""
    weights = loaded.weights
    stored = fused(stored)
    same(weights.embed, stored[at + "embed_tokens.weight"])
    same(weights.final_norm, stored[at + "norm.weight"])
    for i, layer in enumerate(weights.layers):
        assert isinstance(layer.mixer, LinearAttentionWeights) == (
            loaded.config.layer_types[i] == LINEAR
        )
        assert_layer_holds(layer, stored, f"{at}layers.{i}.")


def assert_mtp_holds(loaded: LoadedCheckpoint, stored: Tensors) -> None:
    """The MTP layer's tensors lie in their places, bit for bit."""
    mtp, stored = loaded.weights.mtp, fused(stored)
    assert mtp is not None
    same(mtp.fc, stored["mtp.fc.weight"])
    same(mtp.pre_fc_norm_embedding, stored["mtp.pre_fc_norm_embedding.weight"])
    same(mtp.pre_fc_norm_hidden, stored["mtp.pre_fc_norm_hidden.weight"])
    same(mtp.norm, stored["mtp.norm.weight"])
    assert isinstance(mtp.layer.mixer, FullAttentionWeights)
    assert_layer_holds(mtp.layer, stored, "mtp.layers.0.")


def same(ours: Tensor | Packed | Experts, *parts: Tensor) -> None:
    """The parts lie in `ours`, one behind the other; packed ones in what their numbers mean."""
    if not isinstance(ours, Tensor):
        stack = ours.stack if isinstance(ours, Experts) else ours
        ours = dense(stack, 0, len(stack), torch.float32).view_as(torch.cat(parts))
    torch.testing.assert_close(ours, torch.cat(parts).to(ours.dtype), rtol=0, atol=0)


def assert_layer_holds(layer: LayerWeights, stored: Tensors, at: str) -> None:
    """One decoder layer."""

    def get(*names: str) -> list[Tensor]:
        return [stored[f"{at}{name}.weight"] for name in names]

    same(layer.input_norm, *get("input_layernorm"))
    same(layer.post_norm, *get("post_attention_layernorm"))
    match layer.mlp:
        case MlpWeights() as dense:
            same(dense.gate_up, *get("mlp.gate_proj", "mlp.up_proj"))
            same(dense.down, *get("mlp.down_proj"))
        case MoeWeights() as moe:
            same(moe.gate_up, stored[at + "mlp.experts.gate_up_proj"])
            same(moe.down, stored[at + "mlp.experts.down_proj"])
            assert moe.router.dtype == torch.float32
            same(moe.router, *get("mlp.gate", "mlp.shared_expert_gate"))
            shared = "mlp.shared_expert."
            same(moe.shared.gate_up, *get(f"{shared}gate_proj", f"{shared}up_proj"))
            same(moe.shared.down, *get(f"{shared}down_proj"))
    match layer.mixer:
        case LinearAttentionWeights() as linear:
            parts = ("qkv", "z", "b", "a")
            same(linear.in_proj, *get(*(f"linear_attn.in_proj_{part}" for part in parts)))
            same(linear.conv[:, None], *get("linear_attn.conv1d"))
            same(linear.norm, *get("linear_attn.norm"))
            same(linear.out_proj, *get("linear_attn.out_proj"))
            for ours, name in ((linear.A_log, "A_log"), (linear.dt_bias, "dt_bias")):
                assert ours.dtype == torch.float32
                same(ours, stored[f"{at}linear_attn.{name}"])
        case FullAttentionWeights() as full:
            same(full.qkv_proj, *get(*(f"self_attn.{part}_proj" for part in "qkv")))
            same(full.o_proj, *get("self_attn.o_proj"))
            same(full.q_norm, *get("self_attn.q_norm"))
            same(full.k_norm, *get("self_attn.k_norm"))
