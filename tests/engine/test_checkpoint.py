"""Checkpoints written by transformers load into the fused layout, or are refused by tensor."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor
from transformers import Qwen3_5ForCausalLM, Qwen3_5ForConditionalGeneration
from transformers.models.qwen3_5.configuration_qwen3_5 import Qwen3_5Config, Qwen3_5TextConfig

from flashrt.engine import checkpoint
from flashrt.engine.checkpoint import LoadedCheckpoint, load_checkpoint
from flashrt.engine.config import LINEAR
from flashrt.engine.weights import FullAttentionWeights, LinearAttentionWeights
from flashrt.errors import CannotServe

Tensors = dict[str, Tensor]
WEIGHTS = "model.safetensors"


def text_config(**changes: Any) -> Qwen3_5TextConfig:
    """A very small model: 3 linear layers and a full one."""
    shape = {
        "vocab_size": 96,
        "hidden_size": 32,
        "intermediate_size": 48,
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
    return Qwen3_5TextConfig(**{**shape, **changes})


def saved(folder: Path, *, shards: str = "1GB", **changes: Any) -> Tensors:
    """A text-only checkpoint with noise in every tensor; returns the noise by name."""
    model = Qwen3_5ForCausalLM(text_config(**changes))
    fill(model)
    model.save_pretrained(folder, max_shard_size=shards)
    return model.state_dict()


def saved_multimodal(folder: Path, tied: bool = False) -> Tensors:
    """The released form: a vision tower beside the language model."""
    vision = {
        "depth": 1,
        "hidden_size": 16,
        "intermediate_size": 16,
        "num_heads": 2,
        "out_hidden_size": 32,
        "num_position_embeddings": 16,
    }
    text = text_config(tie_word_embeddings=tied).to_dict()
    config = Qwen3_5Config(text_config=text, vision_config=vision, tie_word_embeddings=tied)
    model = Qwen3_5ForConditionalGeneration(config)
    fill(model)
    model.save_pretrained(folder)
    return model.state_dict()


def fill(model: torch.nn.Module) -> None:
    """Noise everywhere, so no two tensors are alike."""
    generator = torch.Generator().manual_seed(0)
    for parameter in model.parameters():
        parameter.data.normal_(generator=generator)


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

    def same(ours: Tensor, *names: str) -> None:
        theirs = torch.cat([stored[at + name] for name in names])
        torch.testing.assert_close(ours, theirs.to(ours.dtype), rtol=0, atol=0)

    same(weights.embed, "embed_tokens.weight")
    same(weights.final_norm, "norm.weight")
    for i, layer in enumerate(weights.layers):
        here = f"layers.{i}."
        same(layer.input_norm, here + "input_layernorm.weight")
        same(layer.post_norm, here + "post_attention_layernorm.weight")
        same(layer.mlp.gate_up, here + "mlp.gate_proj.weight", here + "mlp.up_proj.weight")
        same(layer.mlp.down, here + "mlp.down_proj.weight")
        if loaded.config.layer_types[i] == LINEAR:
            mixer, here = layer.mixer, here + "linear_attn."
            assert isinstance(mixer, LinearAttentionWeights)
            same(
                mixer.in_proj, *(f"{here}in_proj_{part}.weight" for part in ("qkv", "z", "b", "a"))
            )
            same(mixer.conv[:, None], here + "conv1d.weight")
            same(mixer.norm, here + "norm.weight")
            same(mixer.out_proj, here + "out_proj.weight")
            for ours, name in ((mixer.A_log, "A_log"), (mixer.dt_bias, "dt_bias")):
                assert ours.dtype == torch.float32
                same(ours, here + name)
        else:
            full, here = layer.mixer, here + "self_attn."
            assert isinstance(full, FullAttentionWeights)
            same(full.qkv_proj, *(f"{here}{part}_proj.weight" for part in "qkv"))
            same(full.o_proj, here + "o_proj.weight")
            same(full.q_norm, here + "q_norm.weight")
            same(full.k_norm, here + "k_norm.weight")


def test_every_tensor_lands_in_its_rows(tmp_path):
    """Fused matrices hold their parts in order; an untied head is its own tensor."""
    stored = saved(tmp_path)
    loaded = load(tmp_path)
    assert_holds(loaded, stored)
    torch.testing.assert_close(loaded.weights.lm_head, stored["lm_head.weight"], rtol=0, atol=0)
    assert loaded.unused == ()
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
    assert loaded.unused == (f"vision tower ({seen} tensors): images are not read",)


def test_mtp_tensors_are_named_as_unused(tmp_path):
    """Whatever they are: the speculation that reads them checks them."""
    stored = saved(tmp_path)
    edit(tmp_path, lambda t: t.update({f"mtp.part{i}.weight": torch.zeros(3) for i in range(15)}))
    loaded = load(tmp_path)
    assert_holds(loaded, stored)
    assert loaded.unused == ("MTP layer (15 tensors): drafts are not used",)


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
    monkeypatch.setattr(checkpoint, "PIECE_BYTES", 1000)
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


def drop(name: str) -> Any:
    """A change that takes a tensor out."""
    return lambda tensors: tensors.pop(name)


def put(name: str, tensor: Tensor) -> Any:
    """A change that stores a tensor under a name."""
    return lambda tensors: tensors.update({name: tensor})


A_MATRIX = "model.layers.1.mlp.down_proj.weight"

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
        [A_MATRIX, "F8_E4M3", "BF16"],
    ),
    "integers": (put(A_MATRIX, torch.zeros(32, 48, dtype=torch.int32)), [A_MATRIX, "I32"]),
    "block scales": (put(A_MATRIX + "_scale_inv", torch.ones(1, 1)), ["scale_inv", "quantized"]),
    "packed": (
        put("model.layers.0.mlp.up_proj.qweight", torch.zeros(4, dtype=torch.int32)),
        ["up_proj.qweight", "quantized"],
    ),
    "nan": (put(A_MATRIX, torch.full((32, 48), torch.nan)), [A_MATRIX, "not finite"]),
    "infinity": (
        put(A_MATRIX, torch.zeros(32, 48).index_fill_(0, torch.tensor(7), torch.inf)),
        [A_MATRIX, "not finite"],
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
