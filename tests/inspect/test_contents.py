"""What is said of a checkpoint is what its files hold."""

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from flashrt.demo import DEMO_PATH
from flashrt.engine.checkpoint import opened
from flashrt.engine.tensor_plan import allocate_all
from flashrt.inspect.contents import PARTS, Contents, part_of
from tests.engine.checkpoints import NO_MTP, WEIGHTS, mtp_like, saved, saved_multimodal
from tests.engine.quantized import everywhere, rewritten, written


def contents_of(folder: Path) -> Contents:
    """As the command finds them."""
    checkpoint = opened(folder)
    plan = allocate_all(checkpoint.config, "meta", torch.float32, checkpoint.layout)
    return Contents.of(folder, checkpoint, plan)


def test_the_demo_is_told_as_it_is():
    """Every fact, and every byte of its tensors."""
    told = contents_of(DEMO_PATH)
    assert (told.model, told.architecture) == ("flashrt-demo", "dense")
    assert (told.layers, told.linear_attention_layers, told.full_attention_layers) == (8, 6, 2)
    assert (told.hidden_size, told.vocabulary, told.context_tokens) == (384, 8256, 40960)
    assert told.tied_embeddings
    assert told.mtp == "bf16"
    assert told.tokenizer == "8225 tokens; 8192, 8194 end an answer"
    assert told.template.endswith("characters in chat_template.jinja")
    assert told.notes == ()
    stored = load_file(DEMO_PATH / WEIGHTS)
    assert told.size_bytes == sum(tensor.nbytes for tensor in stored.values())
    assert sum(share.tensors for share in told.shares) == len(stored)


@pytest.mark.parametrize("moe", [False, True], ids=["dense", "mixture"])
def test_forms_are_told_by_kind_of_matrix(tmp_path, moe):
    """Packed ones count once, with their scales; the MTP layer's form is told for itself."""
    saved(tmp_path, moe=moe)
    tensors = load_file(tmp_path / WEIGHTS)
    written(tmp_path, {**tensors, **mtp_like(tensors)})
    matrices = everywhere(tensors, "fp8 blocks")
    rewritten(tmp_path, matrices)
    told = contents_of(tmp_path)
    forms = {(share.part, share.stored_as): share.tensors for share in told.shares}
    assert told.mtp == "f32"
    assert forms["embedding", "f32"] == 1
    assert forms["output head", "fp8 128x128"] == 1
    assert forms["linear attention, in", "fp8 128x128"] == 12
    part = "experts" if moe else "feed-forward, gate up"
    assert forms[part, "fp8 128x128"] == (36 if moe else 8)
    assert sum(n for (_, form), n in forms.items() if form == "fp8 128x128") == len(matrices)
    stored = load_file(tmp_path / WEIGHTS)
    assert told.size_bytes == sum(tensor.nbytes for tensor in stored.values())


@pytest.mark.parametrize(
    ("packer", "form"),
    [("int4 packed", "int4 g32"), ("nvfp4, divided", "nvfp4"), ("fp8 tensor", "fp8 per row")],
)
def test_each_form_has_its_name(tmp_path, packer, form):
    """With the size of its groups where they differ."""
    saved(tmp_path, intermediate_size=96)
    rewritten(tmp_path, everywhere(load_file(tmp_path / WEIGHTS), packer))
    assert form in {share.stored_as for share in contents_of(tmp_path).shares}


def test_what_is_left_out_or_missing_is_noted(tmp_path):
    """In the words that serving uses; a file that cannot be used is told in place of its facts."""
    saved_multimodal(tmp_path)
    told = contents_of(tmp_path)
    assert told.notes[0] == NO_MTP
    assert told.notes[1].startswith("vision tower (")
    assert told.mtp == ""
    assert told.tokenizer.startswith("cannot be used: ")
    assert told.template.startswith("cannot be used: ")


def test_every_key_is_of_one_part():
    """The first that fits; whatever is left is the rest."""
    assert part_of("mtp.layers.0.self_attn.q_proj.weight") == "MTP layer"
    assert part_of("mtp.layers.0.mlp.experts.down_proj") == "MTP layer"
    assert part_of("mtp.norm.weight") == "MTP layer's norms and router"
    assert part_of("model.layers.0.mlp.experts.3.up_proj.weight") == "experts"
    assert part_of("model.layers.0.mlp.shared_expert_gate.weight") == list(PARTS)[-1]
    assert part_of("model.layers.0.mlp.gate.weight") == list(PARTS)[-1]
