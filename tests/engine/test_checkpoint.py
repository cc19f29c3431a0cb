"""Checkpoints written by transformers load into the fused layout, or are refused by tensor."""

import json
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from flashrt.engine import streaming
from flashrt.errors import CannotServe
from tests.engine.checkpoints import (
    NO_MTP,
    WEIGHTS,
    Tensors,
    assert_holds,
    assert_mtp_holds,
    edit,
    edit_config,
    fused,
    load,
    mtp_like,
    refusal,
    saved,
    saved_multimodal,
)


def drop(name: str) -> Any:
    """A change that takes a tensor out."""
    return lambda tensors: tensors.pop(name)


def put(name: str, tensor: Tensor) -> Any:
    """A change that stores a tensor under a name."""
    return lambda tensors: tensors.update({name: tensor})


def test_every_tensor_lands_in_its_rows(tmp_path):
    """Fused matrices hold their parts in order; an untied head is its own tensor."""
    stored = saved(tmp_path)
    loaded = load(tmp_path)
    assert_holds(loaded, stored)
    torch.testing.assert_close(loaded.weights.lm_head, stored["lm_head.weight"], rtol=0, atol=0)
    assert loaded.unused == (NO_MTP,)
    assert loaded.model_name == tmp_path.name


def test_a_tied_head_is_the_embedding_itself(tmp_path):
    """No second copy exists, also where the file stores an equal one."""
    stored = saved(tmp_path, tie_word_embeddings=True)
    plain = load(tmp_path)
    assert plain.weights.lm_head is plain.weights.embed
    edit(
        tmp_path,
        lambda t: t.update({"lm_head.weight": stored["model.embed_tokens.weight"].clone()}),
    )
    twice = load(tmp_path)
    assert_holds(twice, stored)
    assert twice.weights.lm_head is twice.weights.embed
    assert twice.weights.checksum == plain.weights.checksum


def test_a_tied_head_that_differs_is_refused(tmp_path):
    """The config would throw a trained head away."""
    saved(tmp_path, tie_word_embeddings=True)
    edit(tmp_path, lambda t: t.update({"lm_head.weight": t["model.embed_tokens.weight"] + 1}))
    assert "lm_head.weight differs from the embedding" in refusal(tmp_path)


@pytest.mark.parametrize("tied", [False, True])
def test_a_multimodal_checkpoint_is_read_without_its_vision_tower(tmp_path, tied):
    """The language model is the same under the longer prefix; what is left out is said."""
    stored = saved_multimodal(tmp_path, tied)
    loaded = load(tmp_path)
    assert_holds(loaded, stored, "model.language_model.")
    seen = sum(name.startswith("model.visual.") for name in stored)
    assert loaded.unused == (NO_MTP, f"vision tower ({seen} tensors): images are not read")


@pytest.mark.parametrize("moe", [False, True], ids=["dense", "mixture"])
def test_the_mtp_layer_is_loaded(tmp_path, moe):
    """Its tensors lie in their places and count in the checksum, whatever config.json says."""
    stored = saved(tmp_path, moe=moe)
    before = load(tmp_path)
    assert before.weights.mtp is None
    mtp = mtp_like(load_file(tmp_path / WEIGHTS))
    edit(tmp_path, lambda t: t.update(mtp))
    for announced in (1, 0):
        edit_config(tmp_path, mtp_num_hidden_layers=announced)
        loaded = load(tmp_path)
        assert_holds(loaded, stored)
        assert_mtp_holds(loaded, mtp)
        assert loaded.unused == ()
        assert loaded.weights.checksum != before.weights.checksum


@pytest.mark.parametrize("indexed", [True, False], ids=["in the index", "beside the index"])
def test_an_mtp_layer_in_a_file_of_its_own_is_found(tmp_path, indexed):
    """With an index that names it, or with one that was written before."""
    one, many = tmp_path / "one", tmp_path / "many"
    saved(one)
    mtp = mtp_like(load_file(one / WEIGHTS))
    edit(one, lambda t: t.update(mtp))
    saved(many, shards="30KB")
    save_file(mtp, many / "model-mtp.safetensors")
    if indexed:
        file = many / "model.safetensors.index.json"
        index = json.loads(file.read_text())
        index["weight_map"].update(dict.fromkeys(mtp, "model-mtp.safetensors"))
        file.write_text(json.dumps(index))
    loaded = load(many)
    assert_mtp_holds(loaded, mtp)
    assert loaded.weights.checksum == load(one).weights.checksum


def test_a_checkpoint_that_announces_an_mtp_layer_may_lack_it(tmp_path):
    """Conversions drop its tensors: plain decode, in one line."""
    stored = saved(tmp_path, mtp_num_hidden_layers=1)
    loaded = load(tmp_path)
    assert_holds(loaded, stored)
    assert (loaded.weights.mtp, loaded.unused) == (None, (NO_MTP,))


def test_an_mtp_layer_with_a_tensor_missing_is_refused(tmp_path):
    """Any one of its 15, by name: it would draft rubbish."""
    saved(tmp_path)
    plain = load_file(tmp_path / WEIGHTS)
    mtp = mtp_like(plain)
    assert len(mtp) == 15
    for name in mtp:
        save_file({**plain, **mtp}, tmp_path / WEIGHTS)
        edit(tmp_path, drop(name))
        message = refusal(tmp_path)
        assert f"tensor {name} [" in message
        assert "is missing from the checkpoint; an MTP layer is complete" in message


def test_a_multimodal_checkpoint_names_its_mtp_tensors_without_prefix(tmp_path):
    """They lie beside the language model, not in it."""
    saved_multimodal(tmp_path)
    edit(tmp_path, lambda t: t.update(mtp_like(t)))
    assert load(tmp_path).weights.mtp is not None
    edit(tmp_path, drop("mtp.fc.weight"))
    assert "tensor mtp.fc.weight [32, 64] is missing" in refusal(tmp_path)


@pytest.mark.parametrize("prefix", ["model.", "model.language_model."])
def test_fused_and_single_experts_are_the_same_weights(tmp_path, prefix):
    """Gate rows first, expert by expert; also where only the MTP layer stores them one by one."""
    write = saved if prefix == "model." else saved_multimodal
    stored = write(tmp_path, moe=True)
    single = load_file(tmp_path / WEIGHTS)
    mtp = mtp_like(single)
    for body, drafting in ((single, mtp), (fused(single), fused(mtp)), (fused(single), mtp)):
        save_file({**body, **drafting}, tmp_path / WEIGHTS)
        loaded = load(tmp_path)
        assert_holds(loaded, stored, prefix)
        assert_mtp_holds(loaded, mtp)


def test_how_tensors_are_spread_over_files_changes_nothing(tmp_path):
    """One file, many with an index, many without: the same weights and the same checksum."""
    one, many = tmp_path / "one", tmp_path / "many"
    stored = saved(one)
    saved(many, shards="30KB")
    assert len(list(many.glob("*.safetensors"))) > 3
    checksum = load(one).weights.checksum
    assert load(many).weights.checksum == checksum
    (many / "model.safetensors.index.json").unlink()
    loaded = load(many)
    assert_holds(loaded, stored)
    assert loaded.weights.checksum == checksum


def test_cutting_reads_into_pieces_changes_no_weight(tmp_path, monkeypatch):
    """Tensors larger than one read are put together in order."""
    stored = saved(tmp_path)
    monkeypatch.setattr(streaming, "PIECE_BYTES", 1000)
    assert_holds(load(tmp_path), stored)


def test_the_checksum_sees_one_changed_bit(tmp_path):
    """It is over all bytes, and not over the dtype that they are loaded as."""
    saved(tmp_path)
    before = load(tmp_path).weights.checksum
    assert load(tmp_path, torch.bfloat16).weights.checksum == before

    def flip(tensors: Tensors) -> None:
        bits = tensors["model.layers.2.mlp.up_proj.weight"].view(torch.int32)
        bits[-1, -1] ^= 1

    edit(tmp_path, flip)
    assert load(tmp_path).weights.checksum != before


@pytest.mark.parametrize("stored_as", [torch.bfloat16, torch.float16])
def test_stored_dtypes_become_the_engine_dtype(tmp_path, stored_as):
    """16-bit files load as float32 exactly; A_log and dt_bias are float32 in every engine."""
    saved(tmp_path)
    edit(tmp_path, lambda t: t.update({name: tensor.to(stored_as) for name, tensor in t.items()}))
    stored = load_file(tmp_path / WEIGHTS)
    assert_holds(load(tmp_path), stored)
    assert_holds(load(tmp_path, stored_as), stored)


A_MATRIX = "model.layers.1.mlp.down_proj.weight"
AN_EXPERT = "model.layers.1.mlp.experts.2.gate_proj.weight"

BROKEN = {
    "missing": (drop(A_MATRIX), [A_MATRIX, "[32, 48]", "missing"]),
    "missing head": (drop("lm_head.weight"), ["lm_head.weight", "[96, 32]", "tie_word_embeddings"]),
    "misshapen": (put(A_MATRIX, torch.zeros(48, 32)), [A_MATRIX, "[48, 32]", "[32, 48]"]),
    "unexpected": (
        put("model.layers.9.A_log", torch.zeros(4)),
        ["model.layers.9.A_log", "no place"],
    ),
    "bias": (put("model.layers.3.self_attn.q_proj.bias", torch.zeros(4)), ["q_proj.bias"]),
    "float8": (
        put(A_MATRIX, torch.zeros(32, 48).to(torch.float8_e4m3fn)),
        [A_MATRIX, "F8_E4M3", "needs", A_MATRIX + "_scale_inv", A_MATRIX + "_scale", "BF16"],
    ),
    "integers": (put(A_MATRIX, torch.zeros(32, 48, dtype=torch.int32)), [A_MATRIX, "I32"]),
    "block scales": (
        put(A_MATRIX + "_scale_inv", torch.ones(1, 1)),
        [A_MATRIX + "_scale_inv", "quantized", f"{A_MATRIX} is F32"],
    ),
    "packed": (
        put("model.layers.0.mlp.up_proj.qweight", torch.zeros(4, dtype=torch.int32)),
        ["up_proj.qweight", "I32", "needs", "up_proj.qzeros"],
    ),
    "nan": (put(A_MATRIX, torch.full((32, 48), torch.nan)), [A_MATRIX, "not finite"]),
    "infinity": (
        put(A_MATRIX, torch.zeros(32, 48).index_fill_(0, torch.tensor(7), torch.inf)),
        [A_MATRIX, "not finite"],
    ),
}


BROKEN_MTP = {
    "misshapen": (put("mtp.fc.weight", torch.zeros(64, 32)), ["mtp.fc.weight", "[32, 64]"]),
    "a second layer": (
        put("mtp.layers.1.input_layernorm.weight", torch.zeros(32)),
        ["mtp.layers.1.input_layernorm.weight", "no place"],
    ),
    "embeddings of its own": (
        put("mtp.embed_tokens.weight", torch.zeros(96, 32)),
        ["mtp.embed_tokens.weight", "no place"],
    ),
    "nan": (put("mtp.norm.weight", torch.full((32,), torch.nan)), ["mtp.norm.weight", "finite"]),
    "float8": (
        put("mtp.fc.weight", torch.zeros(32, 64).to(torch.float8_e4m3fn)),
        ["mtp.fc.weight", "F8_E4M3"],
    ),
    "scales": (put("mtp.fc.weight_scale_inv", torch.ones(1, 1)), ["mtp.fc", "quantized"]),
}
BROKEN_EXPERTS = {
    "one missing": (drop(AN_EXPERT), [AN_EXPERT, "[24, 32]", "missing"]),
    "one misshapen": (put(AN_EXPERT, torch.zeros(32, 24)), [AN_EXPERT, "[32, 24]", "[24, 32]"]),
    "one too many": (
        put("model.layers.1.mlp.experts.3.up_proj.weight", torch.zeros(24, 32)),
        ["model.layers.1.mlp.experts.3.up_proj.weight", "no place"],
    ),
    "in both forms": (
        put("model.layers.1.mlp.experts.down_proj", torch.zeros(3, 32, 24)),
        ["model.layers.1.mlp.experts.down_proj", "no place"],
    ),
    "no router": (drop("model.layers.0.mlp.gate.weight"), ["layers.0.mlp.gate.weight", "[3, 32]"]),
    "no gate": (
        drop("model.layers.2.mlp.shared_expert_gate.weight"),
        ["layers.2.mlp.shared_expert_gate.weight", "[1, 32]"],
    ),
}


@pytest.mark.parametrize(("change", "words"), BROKEN.values(), ids=BROKEN.keys())
def test_a_tensor_that_does_not_fit_is_refused_by_name(tmp_path, change, words):
    """The sentence holds the tensor's name and, for shapes, both of them."""
    saved(tmp_path)
    edit(tmp_path, change)
    message = refusal(tmp_path)
    for word in words:
        assert word in message


@pytest.mark.parametrize(("change", "words"), BROKEN_MTP.values(), ids=BROKEN_MTP.keys())
def test_an_mtp_layer_that_does_not_fit_is_refused_by_name(tmp_path, change, words):
    """A drafter is loaded as it should be or not at all."""
    saved(tmp_path)
    edit(tmp_path, lambda t: t.update(mtp_like(t)))
    edit(tmp_path, change)
    message = refusal(tmp_path)
    for word in words:
        assert word in message


@pytest.mark.parametrize(("change", "words"), BROKEN_EXPERTS.values(), ids=BROKEN_EXPERTS.keys())
def test_experts_that_do_not_fit_are_refused_by_name(tmp_path, change, words):
    """Down to the single expert."""
    saved(tmp_path, moe=True)
    edit(tmp_path, change)
    message = refusal(tmp_path)
    for word in words:
        assert word in message


def test_a_missing_tensor_is_named_as_its_checkpoint_would(tmp_path):
    """With the multimodal prefix, and with the number of others."""
    saved_multimodal(tmp_path)

    def cut(tensors: Tensors) -> None:
        for name in [name for name in tensors if "layers.2.mlp" in name]:
            del tensors[name]

    edit(tmp_path, cut)
    message = refusal(tmp_path)
    assert "model.language_model.layers.2.mlp.gate_proj.weight [48, 32] is missing" in message
    assert "2 others" in message


def test_a_value_too_large_for_the_engine_dtype_is_refused(tmp_path):
    """float16 ends at 65,504."""
    saved(tmp_path)
    edit(tmp_path, put(A_MATRIX, torch.full((32, 48), 1e6)))
    assert load(tmp_path, torch.bfloat16).weights.checksum
    with pytest.raises(CannotServe, match=r"not finite \(as torch.float16\)"):
        load(tmp_path, torch.float16)


def test_a_config_of_another_model_is_refused_by_both_shapes(tmp_path):
    """The tensors disagree with the config's formulas."""
    saved(tmp_path)
    edit_config(tmp_path, head_dim=32)
    message = refusal(tmp_path)
    assert "self_attn" in message
    assert "but config.json makes it" in message


def test_a_header_whose_sizes_disagree_is_refused(tmp_path):
    """A shape of 32 x 48 that takes the bytes of something else."""
    saved(tmp_path)
    file = tmp_path / WEIGHTS
    data = file.read_bytes()
    length = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + length])
    header[A_MATRIX]["data_offsets"][1] -= 4
    text = json.dumps(header, separators=(",", ":")).encode()
    file.write_bytes(len(text).to_bytes(8, "little") + text + data[8 + length :])
    assert f"tensor {A_MATRIX} in {WEIGHTS} has 6,140 bytes" in refusal(tmp_path)
