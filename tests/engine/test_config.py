"""config.json becomes the numbers of the forward pass, or is refused by key and value."""

import json
from typing import Any

import attrs
import pytest

from flashrt.engine.config import FULL, LINEAR, MoeConfig, parse_config, read_config
from flashrt.errors import CannotServe


def plain(**changes: Any) -> dict[str, Any]:
    """A text-only config of the family; a change to None takes the key out."""
    config = {
        "model_type": "qwen3_5_text",
        "architectures": ["Qwen3_5ForCausalLM"],
        "vocab_size": 320,
        "hidden_size": 64,
        "intermediate_size": 96,
        "num_hidden_layers": 8,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 32,
        "linear_num_key_heads": 2,
        "linear_num_value_heads": 6,
        "linear_key_head_dim": 16,
        "linear_value_head_dim": 24,
        "linear_conv_kernel_dim": 4,
        "rms_norm_eps": 1e-6,
        "max_position_embeddings": 4096,
        "tie_word_embeddings": False,
        "rope_parameters": {"rope_type": "default", "rope_theta": 1e7},
        **changes,
    }
    return {key: value for key, value in config.items() if value is not None}


def mixture(**changes: Any) -> dict[str, Any]:
    """A text-only config of a mixture of experts."""
    experts = {
        "model_type": "qwen3_5_moe_text",
        "architectures": ["Qwen3_5MoeForCausalLM"],
        "intermediate_size": None,
        "num_experts": 8,
        "num_experts_per_tok": 3,
        "moe_intermediate_size": 40,
        "shared_expert_intermediate_size": 48,
    }
    return plain(**{**experts, **changes})


def wrapped(text: dict[str, Any], **changes: Any) -> dict[str, Any]:
    """The multimodal form around `text`."""
    return {
        "model_type": "qwen3_5",
        "architectures": ["Qwen3_5ForConditionalGeneration"],
        "text_config": {k: v for k, v in text.items() if k != "architectures"},
        "vision_config": {"model_type": "qwen3_5"},
        **changes,
    }


def test_every_number_arrives():
    """Each key of config.json lands in its field, and widths follow from them."""
    config = parse_config(plain(mtp_num_hidden_layers=1))
    assert attrs.asdict(config) == {
        "vocab_size": 320,
        "hidden_size": 64,
        "intermediate_size": 96,
        "layer_types": (LINEAR, LINEAR, LINEAR, FULL) * 2,
        "num_heads": 4,
        "num_kv_heads": 2,
        "head_dim": 32,
        "rotary_dim": 8,
        "rope_theta": 1e7,
        "linear_key_heads": 2,
        "linear_value_heads": 6,
        "linear_key_dim": 16,
        "linear_value_dim": 24,
        "conv_kernel": 4,
        "rms_eps": 1e-6,
        "tied_embeddings": False,
        "max_positions": 4096,
        "mtp_layers": 1,
        "moe": None,
    }
    assert (config.value_width, config.conv_width) == (144, 208)


def test_a_mixture_is_read_in_both_forms():
    """Its experts, alone and inside a wrapper; everything else is as in a dense model."""
    config = parse_config(mixture(norm_topk_prob=True, mlp_only_layers=[], decoder_sparse_step=1))
    assert config.moe == MoeConfig(
        experts=8, experts_per_row=3, intermediate_size=40, shared_intermediate_size=48
    )
    assert attrs.evolve(config, moe=None, intermediate_size=96) == parse_config(plain())
    names = {"model_type": "qwen3_5_moe", "architectures": ["Qwen3_5MoeForConditionalGeneration"]}
    assert parse_config(wrapped(mixture(), **names)) == config


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"num_experts": None}, ["num_experts", "missing"]),
        ({"num_experts": 0}, ["num_experts = 0", "at least 1"]),
        ({"num_experts_per_tok": None}, ["num_experts_per_tok", "missing"]),
        ({"num_experts_per_tok": 9}, ["num_experts_per_tok = 9", "num_experts = 8"]),
        ({"moe_intermediate_size": 0.5}, ["moe_intermediate_size", "0.5"]),
        ({"shared_expert_intermediate_size": 0}, ["shared_expert_intermediate_size", "0"]),
        ({"norm_topk_prob": False}, ["norm_topk_prob", "False", "add up to 1"]),
        ({"mlp_only_layers": [2]}, ["mlp_only_layers", "[2]", "some layers only"]),
        ({"decoder_sparse_step": 2}, ["decoder_sparse_step", "2", "some layers only"]),
    ],
)
def test_a_mixture_that_cannot_be_computed_is_refused(change, words):
    """By key and value, like any other number."""
    with pytest.raises(CannotServe) as refusal:
        parse_config(mixture(**change), "some/config.json")
    for word in ["some/config.json", *words]:
        assert word in str(refusal.value)


def test_a_multimodal_config_is_read_as_its_text_part():
    """The wrapper changes nothing, wherever it says that the embeddings are tied."""
    tied = plain(tie_word_embeddings=True)
    assert parse_config(wrapped(plain())) == parse_config(plain())
    assert parse_config(wrapped(tied, tie_word_embeddings=True)) == parse_config(tied)
    silent = plain(tie_word_embeddings=None)
    assert parse_config(wrapped(silent, tie_word_embeddings=True)) == parse_config(tied)


def test_both_spellings_of_rotary_settings_mean_the_same():
    """Flat keys (older files) and `rope_parameters` give the same rotation."""
    new = plain(rope_parameters={"rope_theta": 5e5, "partial_rotary_factor": 0.5})
    old = plain(rope_parameters=None, rope_theta=5e5, partial_rotary_factor=0.5)
    with_scaling = {**old, "rope_scaling": {"type": "default", "mrope_section": [2, 1, 1]}}
    assert parse_config(new) == parse_config(old) == parse_config(with_scaling)
    assert (parse_config(new).rope_theta, parse_config(new).rotary_dim) == (5e5, 16)


def test_layer_kinds_come_from_the_list_or_the_interval():
    """An explicit list wins; without one, every n-th layer has full attention."""
    listed = [FULL, LINEAR] * 4
    assert parse_config(plain(layer_types=listed)).layer_types == tuple(listed)
    assert parse_config(plain(full_attention_interval=2)).layer_types == (LINEAR, FULL) * 4


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"model_type": "qwen4_exp"}, ["model_type", "qwen4_exp", "another architecture"]),
        ({"model_type": "llama"}, ["model_type", "llama", "qwen3_5_text"]),
        ({"model_type": "qwen3_5_moe_text"}, ["num_experts", "missing"]),
        ({"mtp_num_hidden_layers": 2}, ["mtp_num_hidden_layers", "2", "one MTP layer"]),
        ({"mtp_use_dedicated_embeddings": True}, ["mtp_use_dedicated_embeddings", "True"]),
        ({"model_type": None}, ["model_type", "None"]),
        ({"architectures": ["Qwen3_5ForSequenceClassification"]}, ["architectures", "Sequence"]),
        ({"num_experts": 8}, ["num_experts", "8", "model_type is 'qwen3_5_text'"]),
        ({"attention_bias": True}, ["attention_bias", "True"]),
        ({"hidden_act": "gelu"}, ["hidden_act", "gelu"]),
        ({"attn_output_gate": False}, ["attn_output_gate", "False"]),
        ({"output_gate_type": "sigmoid"}, ["output_gate_type", "sigmoid"]),
        ({"use_sliding_window": True}, ["use_sliding_window"]),
        ({"rope_parameters": {"rope_type": "yarn", "rope_theta": 1e7}}, ["rope_type", "yarn"]),
        ({"rope_scaling": {"type": "linear"}}, ["rope_scaling.type", "linear"]),
        ({"rope_parameters": None}, ["rope_theta", "missing"]),
        ({"partial_rotary_factor": 0.1}, ["partial_rotary_factor", "0.1", "head_dim = 32"]),
        ({"num_key_value_heads": 3}, ["num_key_value_heads = 3", "num_attention_heads = 4"]),
        ({"linear_num_value_heads": 5}, ["linear_num_key_heads = 2", "value_heads = 5"]),
        ({"linear_conv_kernel_dim": 1}, ["linear_conv_kernel_dim", "1", "at least 2"]),
        ({"hidden_size": None}, ["hidden_size", "missing"]),
        ({"hidden_size": 64.0}, ["hidden_size", "64.0", "integer"]),
        ({"vocab_size": True}, ["vocab_size", "True"]),
        ({"rms_norm_eps": 0}, ["rms_norm_eps", "0"]),
        ({"layer_types": [LINEAR]}, ["layer_types", "num_hidden_layers = 8"]),
        ({"layer_types": [LINEAR] * 7 + ["mamba"]}, ["layer_types[7]", "mamba"]),
        ({"tie_word_embeddings": "yes"}, ["tie_word_embeddings", "yes"]),
    ],
)
def test_what_cannot_be_computed_is_refused_by_key_and_value(change, words):
    """The message names the file, the key and its value; alone and inside a wrapper."""
    for raw in (plain(**change), wrapped(plain(**change))):
        if "architectures" in change and raw["model_type"] == "qwen3_5":
            continue
        with pytest.raises(CannotServe) as refusal:
            parse_config(raw, "some/config.json")
        for word in ["some/config.json", *words]:
            assert word in str(refusal.value)


def test_quantization_changes_no_shape():
    """Whatever is said of it: `claims.py` looks at that, and tensors have the last word."""
    said = {"quantization_config": {"quant_method": "gptq", "bits": 4}}
    assert parse_config(plain(**said)) == parse_config(plain())
    assert parse_config(wrapped(plain(), **said)) == parse_config(plain())


def test_two_levels_that_disagree_on_tying_are_refused():
    """Which head to use cannot be guessed."""
    with pytest.raises(CannotServe, match="tie_word_embeddings = True: but text_config says False"):
        parse_config(wrapped(plain(), tie_word_embeddings=True))


def test_a_file_that_is_no_json_object_is_refused(tmp_path):
    """Missing, broken and odd files each get a sentence with their path."""
    file = tmp_path / "config.json"
    with pytest.raises(CannotServe, match="cannot be read"):
        read_config(tmp_path)
    file.write_text("{")
    with pytest.raises(CannotServe, match="is not JSON"):
        read_config(tmp_path)
    file.write_text("[]")
    with pytest.raises(CannotServe, match="no JSON object"):
        read_config(tmp_path)
    file.write_text(json.dumps(plain()))
    assert read_config(tmp_path).vocab_size == 320
