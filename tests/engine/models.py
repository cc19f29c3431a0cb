"""Small random models: the reference's own class, and our weights made from its tensors."""

import attrs
import torch
from torch import Tensor
from transformers import (
    PreTrainedModel,
    Qwen3_5ForCausalLM,
    Qwen3_5MoeForCausalLM,
    Qwen3_5MoeTextConfig,
    Qwen3_5TextConfig,
)

from flashrt.engine.config import LINEAR, ModelConfig, MoeConfig, parse_config
from flashrt.engine.hybrid import HybridEngine
from flashrt.engine.weights import (
    FfnWeights,
    FullAttentionWeights,
    LayerWeights,
    LinearAttentionWeights,
    MlpWeights,
    ModelWeights,
    MoeWeights,
)


@attrs.frozen
class Shape:
    """What the tests vary."""

    heads: int = 4
    kv_heads: int = 2
    head_dim: int = 32
    key_heads: int = 2
    value_heads: int = 4
    linear_dim: int = 16
    layers: int = 4
    interval: int = 4
    tied: bool = False
    vocab: int = 61
    experts: int = 0
    """0 makes a dense model."""
    experts_per_row: int = 2
    hidden: int = 64
    inner: int = 96


PLAIN = Shape()
MIXTURE = Shape(experts=8, experts_per_row=3)


def reference(shape: Shape = PLAIN, *, seed: int = 0) -> PreTrainedModel:
    """A random reference model with long memory: as initialised, a state error would fade away."""
    torch.manual_seed(seed)
    ffn = {"intermediate_size": shape.inner}
    if shape.experts:
        ffn = {
            "num_experts": shape.experts,
            "num_experts_per_tok": shape.experts_per_row,
            "moe_intermediate_size": 24,
            "shared_expert_intermediate_size": 40,
        }
    config = (Qwen3_5MoeTextConfig if shape.experts else Qwen3_5TextConfig)(
        **ffn,
        vocab_size=shape.vocab,
        hidden_size=shape.hidden,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads,
        num_key_value_heads=shape.kv_heads,
        head_dim=shape.head_dim,
        linear_num_key_heads=shape.key_heads,
        linear_num_value_heads=shape.value_heads,
        linear_key_head_dim=shape.linear_dim,
        linear_value_head_dim=shape.linear_dim,
        full_attention_interval=shape.interval,
        tie_word_embeddings=shape.tied,
        max_position_embeddings=4096,
        initializer_range=0.1,
        attn_implementation="eager",
    )
    model = (Qwen3_5MoeForCausalLM if shape.experts else Qwen3_5ForCausalLM)(config).eval()
    if shape.experts:  # the plain loop over experts
        model.set_experts_implementation("eager")
    with torch.no_grad():
        for name, tensor in model.named_parameters():
            if name.endswith("dt_bias"):
                tensor.uniform_(-6, -2)
            elif name.endswith("A_log"):
                tensor.uniform_(0.05, 2).log_()
            elif "norm" in name:
                tensor.add_(torch.randn_like(tensor) * 0.2)
    return model


def config_of(model: PreTrainedModel) -> ModelConfig:
    """As it would be read from the checkpoint's file."""
    names = {"architectures": [type(model).__name__]}
    return parse_config({**names, **model.config.to_dict()}, "config.json")


def weights_of(
    model: PreTrainedModel, dtype: torch.dtype = torch.float32, device: str = "cpu"
) -> ModelWeights:
    """Our fused tensors, made by hand."""
    config = config_of(model)
    tensors = {name: tensor.detach().to(device) for name, tensor in model.state_dict().items()}
    layers = tuple(
        _layer(tensors, f"model.layers.{i}.", kind == LINEAR, dtype, config.moe)
        for i, kind in enumerate(config.layer_types)
    )
    embed = tensors["model.embed_tokens.weight"].to(dtype)
    tied = model.config.tie_word_embeddings
    return ModelWeights(
        embed=embed,
        layers=layers,
        final_norm=tensors["model.norm.weight"].to(dtype),
        lm_head=embed if tied else tensors["lm_head.weight"].to(dtype),
        checksum=str(float(embed.double().sum())),
    )


def _layer(
    tensors: dict[str, Tensor],
    prefix: str,
    linear: bool,
    dtype: torch.dtype,
    moe: MoeConfig | None,
) -> LayerWeights:
    def get(*names: str) -> Tensor:
        return torch.cat([tensors[f"{prefix}{name}.weight"] for name in names]).to(dtype)

    mixer: LinearAttentionWeights | FullAttentionWeights
    if linear:
        parts = [f"linear_attn.in_proj_{part}" for part in ("qkv", "z", "b", "a")]
        mixer = LinearAttentionWeights(
            in_proj=get(*parts),
            conv=get("linear_attn.conv1d").squeeze(1),
            A_log=tensors[f"{prefix}linear_attn.A_log"].float(),
            dt_bias=tensors[f"{prefix}linear_attn.dt_bias"].float(),
            norm=get("linear_attn.norm"),
            out_proj=get("linear_attn.out_proj"),
        )
    else:
        mixer = FullAttentionWeights(
            qkv_proj=get("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
            q_norm=get("self_attn.q_norm"),
            k_norm=get("self_attn.k_norm"),
            o_proj=get("self_attn.o_proj"),
        )
    mlp: FfnWeights
    if moe:
        at = "mlp.shared_expert"
        mlp = MoeWeights(
            router=get("mlp.gate", f"{at}_gate").float(),
            gate_up=tensors[f"{prefix}mlp.experts.gate_up_proj"].to(dtype),
            down=tensors[f"{prefix}mlp.experts.down_proj"].to(dtype),
            shared=MlpWeights(get(f"{at}.gate_proj", f"{at}.up_proj"), get(f"{at}.down_proj")),
            experts_per_row=moe.experts_per_row,
        )
    else:
        mlp = MlpWeights(get("mlp.gate_proj", "mlp.up_proj"), get("mlp.down_proj"))
    return LayerWeights(get("input_layernorm"), get("post_attention_layernorm"), mixer, mlp)


def make_engine(
    shape: Shape = PLAIN,
    *,
    dtype: torch.dtype = torch.float32,
    kv_dtype: torch.dtype | None = None,
    device: str = "cpu",
    max_seq: int = 512,
    seed: int = 0,
) -> HybridEngine:
    """A served random model."""
    model = reference(shape, seed=seed)
    weights = weights_of(model, dtype, device)
    return HybridEngine(
        config_of(model), weights, max_seq=max_seq, model_name="random", kv_dtype=kv_dtype
    )


def ids(count: int, vocab: int = 61, seed: int = 0) -> tuple[int, ...]:
    """Random token ids."""
    draw = torch.Generator().manual_seed(seed)
    return tuple(torch.randint(vocab, (count,), generator=draw).tolist())
