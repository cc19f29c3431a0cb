"""The sizes that can be trained, as config.json of the family."""

from typing import Any

from flashrt.demo.make import MAX_POSITIONS, model_config

SIZES: dict[str, dict[str, int]] = {
    "demo": {
        "hidden_size": 384, "intermediate_size": 896, "num_hidden_layers": 8,
        "num_attention_heads": 6, "num_key_value_heads": 2, "head_dim": 64,
        "linear_num_key_heads": 3, "linear_num_value_heads": 6,
        "linear_key_head_dim": 64, "linear_value_head_dim": 64,
    },
    "micro": {
        "hidden_size": 96, "intermediate_size": 192, "num_hidden_layers": 4,
        "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 64,
        "linear_num_key_heads": 2, "linear_num_value_heads": 4,
        "linear_key_head_dim": 32, "linear_value_head_dim": 32,
    },
}  # fmt: skip
ROPE_THETA = 200_000
"""Slow enough for 40,960 positions; the few rotated pairs of a small head have no room for more."""


def shape_config(size: str, tokens: int, stop: int) -> dict[str, Any]:
    """config.json for a vocabulary of `tokens` tokens."""
    config = {**model_config(tokens, stop), **SIZES[size]}
    layers = config["num_hidden_layers"]
    config["layer_types"] = (["linear_attention"] * 3 + ["full_attention"]) * (layers // 4)
    config["rope_parameters"] = {**config["rope_parameters"], "rope_theta": ROPE_THETA}
    assert config["max_position_embeddings"] == MAX_POSITIONS
    return config
