"""What config.json says about quantization: only what no tensor shows counts."""

import json

import pytest

from flashrt.engine.claims import METHODS, Claims, claims_of, disagreements, read_claims
from flashrt.errors import CannotServe

DOWN = "model.layers.3.mlp.down_proj.weight"
QKV = "model.layers.0.linear_attn.in_proj_qkv.weight"


def put(folder, name="config.json", **said) -> None:
    """A small file with these keys."""
    (folder / name).write_text(json.dumps(said))


def test_claims_are_read_on_either_level_and_from_files_of_quantizers(tmp_path):
    """Releases differ in where they put them; nothing said is nothing claimed."""
    put(tmp_path)
    assert read_claims(tmp_path) is None
    put(tmp_path, "quantize_config.json", bits=4, checkpoint_format="gptq_v2")
    assert read_claims(tmp_path) == Claims("quantize_config.json", "gptq", zero_offset=0)
    put(tmp_path, "hf_quant_config.json", quantization={"exclude_modules": ["lm_head"]})
    assert read_claims(tmp_path) == Claims("hf_quant_config.json", "modelopt", ("lm_head",))
    for key in ("quantization_config", "compression_config"):
        said = {key: {"quant_method": "fp8"}}
        for raw in (said, {"text_config": said}):
            put(tmp_path, **raw)
            assert read_claims(tmp_path) == Claims(f"config.json: {key}", "fp8")


@pytest.mark.parametrize(
    "said", ["bitsandbytes", {"quant_method": "quark"}, {"load_in_8bit": True}]
)
def test_an_unknown_method_is_refused_by_name(said):
    """Its tensors might mean something else than they seem to."""
    with pytest.raises(CannotServe) as refused:
        claims_of(said, "config.json: quantization_config")
    method = said.get("quant_method", said) if isinstance(said, dict) else said
    assert f"config.json: quantization_config names the quantization {method!r}" in str(
        refused.value
    )
    assert "FP8 (e4m3)" in str(refused.value)


def test_what_changes_activations_is_refused():
    """Rotations while the model runs are in no tensor's header."""
    said = {"quant_method": "compressed-tensors", "transform_config": {"config_groups": {}}}
    assert claims_of(said, "config.json").method == "compressed-tensors"
    said["transform_config"]["config_groups"] = {"u": {"type": "hadamard"}}
    with pytest.raises(CannotServe, match=r"config.json.transform_config rotates activations"):
        claims_of(said, "config.json")


def test_the_offset_of_zeros_is_what_the_file_says():
    """Old GPTQ files need not say so; no other method has a say."""

    def offset(**said: object) -> int:
        return claims_of({"quant_method": "gptq", **said}, "config.json").zero_offset

    assert (offset(), offset(checkpoint_format="gptq"), offset(format="gptq_v2")) == (1, 1, 0)
    assert offset(quant_method="awq", checkpoint_format="gemm") == 1
    with pytest.raises(
        CannotServe, match="checkpoint_format = 'marlin' is a layout for one kernel"
    ):
        offset(checkpoint_format="marlin")


@pytest.mark.parametrize(
    ("said", "down", "qkv"),
    [
        ({}, True, True),
        ({"ignore": ["lm_head"]}, True, True),
        ({"ignore": ["model.layers.3.mlp.down_proj"]}, False, True),
        ({"ignored_layers": ["model.language_model.layers.3.mlp.down_proj"]}, False, True),
        ({"modules_to_not_convert": ["down_proj"]}, False, True),
        ({"modules_to_not_convert": ["layers.3.mlp"]}, False, True),
        ({"modules_to_not_convert": ["layers.3.ml"]}, True, True),
        ({"exclude_modules": ["model.layers.*.linear_attn*"]}, True, False),
        ({"ignore": [r"re:.*linear_attn\.in_proj_.*"]}, True, False),
        ({"ignore": ["re:("]}, True, True),
        ({"dynamic": {r"-:.*attn.*": {}, "+:.*mlp.*": {"bits": 8}}}, True, False),
        ({"quantized_layers": {"model.layers.3.mlp.down_proj": {}}}, True, False),
        ({"config_groups": {"a": {"targets": ["Linear"]}}}, True, True),
        ({"config_groups": {"a": {"targets": [r"re:.*mlp.*"]}}}, True, False),
    ],
)
def test_lists_name_modules_in_every_known_way(said, down, qkv):
    """Whole names with any prefix, parts of names, patterns; a broken pattern names nothing."""
    claims = claims_of({"quant_method": "fp8", **said}, "config.json")
    assert (claims.quantizes(DOWN), claims.quantizes(QKV)) == (down, qkv)


def test_what_is_not_as_it_is_said_is_told_once():
    """Both ways, with the first name of each and how many more; norms and routers are no matter."""
    claims = Claims("config.json", "fp8", ("model.layers.3",))
    others = ["model.norm.weight", "model.layers.0.mlp.gate.weight", "lm_head.weight"]
    assert disagreements(claims, [*others, DOWN], [QKV]) is None
    assert disagreements(claims, [QKV, QKV + "2", *others], [DOWN, "model.layers.3.a.weight"]) == (
        "config.json (fp8) says otherwise, but model.layers.3.a.weight (and 1 more) is quantized, "
        f"{QKV} is not"
    )
    assert disagreements(None, others, []) is None
    assert disagreements(None, others, [DOWN]) == (
        f"config.json says nothing of quantization, but {DOWN} is quantized"
    )


def test_methods_are_spelled_as_files_spell_them():
    """Each is known."""
    for method in METHODS:
        assert claims_of({"quant_method": method}, "config.json").method == method
