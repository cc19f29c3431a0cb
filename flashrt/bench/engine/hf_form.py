"""A shape as the config.json of a checkpoint: what other programs make the same model from."""

from typing import Any

from flashrt.engine.config import ModelConfig

TYPES = {False: ("qwen3_5", "Qwen3_5"), True: ("qwen3_5_moe", "Qwen3_5Moe")}
"""By whether it is a mixture of experts: the model's type, and how its classes' names begin."""

VISION = {
    "depth": 27,
    "hidden_size": 1152,
    "intermediate_size": 4304,
    "num_heads": 16,
    "num_position_embeddings": 2304,
    "patch_size": 16,
    "spatial_merge_size": 2,
    "temporal_patch_size": 2,
    "hidden_act": "gelu_pytorch_tanh",
    "in_channels": 3,
    "deepstack_visual_indexes": [],
}
"""Released checkpoints are multimodal, and some programs read no others; it is never computed."""


def text_config(config: ModelConfig, dtype: str) -> dict[str, Any]:
    """The language model alone."""
    kind, classes = TYPES[config.moe is not None]
    rope = {
        "rope_type": "default",
        "rope_theta": config.rope_theta,
        "partial_rotary_factor": config.rotary_dim / config.head_dim,
        "mrope_interleaved": True,
        "mrope_section": _sections(config.rotary_dim // 2),
    }
    return {
        "model_type": f"{kind}_text",
        "architectures": [f"{classes}ForCausalLM"],
        "dtype": dtype,
        "vocab_size": config.vocab_size,
        "hidden_size": config.hidden_size,
        "num_hidden_layers": len(config.layer_types),
        "layer_types": list(config.layer_types),
        "num_attention_heads": config.num_heads,
        "num_key_value_heads": config.num_kv_heads,
        "head_dim": config.head_dim,
        "hidden_act": "silu",
        "attn_output_gate": True,
        "linear_num_key_heads": config.linear_key_heads,
        "linear_num_value_heads": config.linear_value_heads,
        "linear_key_head_dim": config.linear_key_dim,
        "linear_value_head_dim": config.linear_value_dim,
        "linear_conv_kernel_dim": config.conv_kernel,
        "rms_norm_eps": config.rms_eps,
        "rope_parameters": rope,
        "tie_word_embeddings": config.tied_embeddings,
        "max_position_embeddings": config.max_positions,
        "mtp_num_hidden_layers": config.mtp_layers,
        "eos_token_id": config.vocab_size - 1,
        **_feed_forward(config),
    }


def whole_config(config: ModelConfig, dtype: str) -> dict[str, Any]:
    """Inside a multimodal model, as it is released."""
    kind, classes = TYPES[config.moe is not None]
    return {
        "model_type": kind,
        "architectures": [f"{classes}ForConditionalGeneration"],
        "dtype": dtype,
        "tie_word_embeddings": config.tied_embeddings,
        "text_config": text_config(config, dtype),
        "vision_config": {**VISION, "model_type": kind, "out_hidden_size": config.hidden_size},
        "image_token_id": config.vocab_size - 5,
        "video_token_id": config.vocab_size - 4,
        "vision_start_token_id": config.vocab_size - 3,
        "vision_end_token_id": config.vocab_size - 2,
    }


def _feed_forward(config: ModelConfig) -> dict[str, Any]:
    if config.moe is None:
        return {"intermediate_size": config.intermediate_size}
    return {
        "num_experts": config.moe.experts,
        "num_experts_per_tok": config.moe.experts_per_row,
        "moe_intermediate_size": config.moe.intermediate_size,
        "shared_expert_intermediate_size": config.moe.shared_intermediate_size,
    }


def _sections(frequencies: int) -> list[int]:
    """Rotary frequencies of time, height and width: 11, 11 and 10 of 32. Text has one position for
    all three, so it does not matter which is whose."""
    third = -(-frequencies // 3)
    return [third, third, frequencies - 2 * third]
