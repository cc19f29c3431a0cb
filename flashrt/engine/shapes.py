"""Named shapes that can be measured without a checkpoint. Knows no torch.

Speed does not depend on the values of weights, so random ones will do. The numbers of `27b` and
`35b-a3b` are those of the Qwen3.5 / 3.6 checkpoints of that name, with their one MTP layer.
"""

from collections.abc import Mapping
from typing import Any

import attrs

from flashrt.engine.config import FULL, LINEAR, ModelConfig, MoeConfig

PATTERN = (LINEAR, LINEAR, LINEAR, FULL)
"""Every fourth layer has full attention."""

FAMILY: Mapping[str, Any] = {
    "vocab_size": 248320,
    "head_dim": 256,
    "rotary_dim": 64,
    "rope_theta": 1e7,
    "linear_key_heads": 16,
    "linear_key_dim": 128,
    "linear_value_dim": 128,
    "conv_kernel": 4,
    "rms_eps": 1e-6,
    "tied_embeddings": False,
    "max_positions": 262144,
    "mtp_layers": 1,
}
"""What all sizes of the family share."""

DENSE = ModelConfig(
    **FAMILY,
    hidden_size=5120,
    intermediate_size=17408,
    layer_types=PATTERN * 16,
    num_heads=24,
    num_kv_heads=4,
    linear_value_heads=48,
)
MIXTURE = ModelConfig(
    **FAMILY,
    hidden_size=2048,
    intermediate_size=0,
    layer_types=PATTERN * 10,
    num_heads=16,
    num_kv_heads=2,
    linear_value_heads=32,
    moe=MoeConfig(
        experts=256, experts_per_row=8, intermediate_size=512, shared_intermediate_size=512
    ),
)
TINY = attrs.evolve(
    DENSE,
    vocab_size=8320,
    hidden_size=128,
    intermediate_size=256,
    layer_types=PATTERN,
    num_heads=4,
    num_kv_heads=2,
    head_dim=64,
    rotary_dim=16,
    linear_key_heads=2,
    linear_value_heads=4,
    linear_key_dim=32,
    linear_value_dim=32,
    max_positions=40960,
)
TINY_MIXTURE = attrs.evolve(
    TINY,
    intermediate_size=0,
    moe=MoeConfig(experts=8, experts_per_row=2, intermediate_size=64, shared_intermediate_size=64),
)

SHAPES: Mapping[str, ModelConfig] = {
    "tiny": TINY,
    "tiny-moe": TINY_MIXTURE,
    "27b": DENSE,
    "35b-a3b": MIXTURE,
}
