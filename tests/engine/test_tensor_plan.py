"""The plan of a checkpoint's tensors: which names, how many, and which memory each one fills."""

import itertools
from collections import Counter
from collections.abc import Sequence
from typing import Any

import attrs
import pytest
import torch

from flashrt.engine import forms
from flashrt.engine.config import ModelConfig, parse_config
from flashrt.engine.forms import FP8_BLOCKS, FP8_ROWS, INT4, NVFP4, FormSpec
from flashrt.engine.matrix import sole_part
from flashrt.engine.tensor_plan import Layout, allocate, allocate_all, layout_of

DENSE_27B = {
    "model_type": "qwen3_5_text",
    "vocab_size": 248_320,
    "hidden_size": 5120,
    "intermediate_size": 17_408,
    "num_hidden_layers": 64,
    "num_attention_heads": 24,
    "num_key_value_heads": 4,
    "head_dim": 256,
    "linear_num_key_heads": 16,
    "linear_num_value_heads": 48,
    "linear_key_head_dim": 128,
    "linear_value_head_dim": 128,
    "linear_conv_kernel_dim": 4,
    "rms_norm_eps": 1e-6,
    "max_position_embeddings": 262_144,
    "rope_parameters": {"rope_theta": 1e7},
}
MIXTURE_35B = {
    **DENSE_27B,
    "model_type": "qwen3_5_moe_text",
    "hidden_size": 2048,
    "num_hidden_layers": 40,
    "num_attention_heads": 16,
    "num_key_value_heads": 2,
    "linear_num_value_heads": 32,
    "num_experts": 256,
    "num_experts_per_tok": 8,
    "moe_intermediate_size": 512,
    "shared_expert_intermediate_size": 512,
}
SPLIT = frozenset({"mtp.layers.0.", *(f"model.layers.{i}." for i in range(40))})


def planned(raw: dict[str, Any], layout: Layout) -> tuple[Counter[str], int]:
    """How many tensors of each layer (or "" for the others), and the elements of all."""
    _, slots = allocate(parse_config(raw), "meta", torch.bfloat16, layout)
    layers: Counter[str] = Counter()
    for key in slots:
        layer, dot, _ = key.partition("layers.")[2].partition(".")
        layers["mtp" if key.startswith("mtp.") else layer if dot else ""] += 1
    return layers, sum(slot.numel() for slot in slots.values())


def test_a_dense_checkpoint_has_the_tensors_of_the_published_ones():
    """27B: 851 tensors of text and 15 of the MTP layer, 26.896 and 0.425 billion parameters."""
    layers, count = planned(DENSE_27B, Layout(mtp=True))
    assert (layers["0"], layers["3"], layers["mtp"], layers[""]) == (14, 11, 15, 3)
    assert layers.total() == 851 + 15
    alone = planned(DENSE_27B, Layout())[1]
    assert (round(alone / 1e9, 3), round((count - alone) / 1e9, 3)) == (26.896, 0.425)


def test_a_mixture_has_the_tensors_of_the_published_ones():
    """35B-A3B: 19 of the MTP layer with fused experts; 34.661 and 0.845 billion parameters."""
    layers, count = planned(MIXTURE_35B, Layout(mtp=True))
    assert (layers["0"], layers["3"], layers["mtp"]) == (18, 15, 19)
    alone = planned(MIXTURE_35B, Layout())[1]
    assert (round(alone / 1e9, 3), round((count - alone) / 1e9, 3)) == (34.661, 0.845)


def test_experts_stored_one_by_one_are_as_many_parameters():
    """Three tensors of each expert instead of two of all."""
    fused, split = planned(MIXTURE_35B, Layout(mtp=True)), planned(MIXTURE_35B, Layout(True, SPLIT))
    assert split[1] == fused[1]
    assert split[0]["0"] == fused[0]["0"] - 2 + 3 * 256
    assert split[0]["mtp"] == fused[0]["mtp"] - 2 + 3 * 256


def small() -> ModelConfig:
    """Little enough to allocate."""
    small = {
        "vocab_size": 64,
        "hidden_size": 32,
        "num_hidden_layers": 4,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "head_dim": 16,
        "linear_num_key_heads": 2,
        "linear_num_value_heads": 4,
        "linear_key_head_dim": 8,
        "linear_value_head_dim": 8,
        "num_experts": 5,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": 12,
        "shared_expert_intermediate_size": 20,
    }
    return parse_config({**MIXTURE_35B, **small})


@pytest.mark.parametrize("split", [frozenset(), SPLIT])
def test_the_views_cover_the_weights_without_overlap(split):
    """Each is contiguous, no two share an element, and together they are all bytes allocated."""
    _, slots = allocate(small(), "cpu", torch.float32, Layout(True, split))
    ranges, memory = [], {}
    for slot in slots.values():
        assert slot.is_contiguous()
        ranges.append((slot.data_ptr(), slot.data_ptr() + slot.nbytes))
        memory[slot.untyped_storage().data_ptr()] = slot.untyped_storage().nbytes()
    ranges.sort()
    assert all(end <= start for (_, end), (start, _) in itertools.pairwise(ranges))
    assert sum(end - start for start, end in ranges) == sum(memory.values())


SPECS = (FormSpec(FP8_BLOCKS), FormSpec(FP8_ROWS), FormSpec(NVFP4), FormSpec(INT4, 16))


def packed_experts(specs: Sequence[FormSpec]) -> Layout:
    """Those of layer 0 in these forms, in turn; and its shared expert in the first."""
    at = "model.layers.0.mlp."
    routed = [f"{at}experts.{e}.{part}_proj.weight" for e in range(5) for part in PARTS]
    shared = {f"{at}shared_expert.{part}_proj.weight": specs[0] for part in PARTS}
    return Layout(quantized={**dict(zip(routed, itertools.cycle(specs))), **shared})


PARTS = ("gate", "up", "down")


@pytest.mark.parametrize("inner", [48, 128, 160])
@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: spec.kind)
def test_experts_of_one_form_lie_in_one_stack(spec, inner):
    """Gate and up of each after the other, whether or not a block of scales ends with a matrix;
    each fills its rows of it, and nothing is allocated twice."""
    moe = attrs.evolve(small().moe, intermediate_size=inner, shared_intermediate_size=inner)
    config = attrs.evolve(small(), hidden_size=48, moe=moe)
    made = allocate_all(config, "cpu", torch.bfloat16, packed_experts([spec]))
    ffn = made.weights.layers[0].mlp
    for matrix, rows in ((ffn.gate_up, 5 * 2 * inner), (ffn.down, 5 * 48),
                         (ffn.shared.gate_up, 2 * inner), (ffn.shared.down, 48)):  # fmt: skip
        part = sole_part(matrix)
        assert len(part.weight) == rows
        for tensor in forms.tensors(part):
            tensor.view(torch.uint8).zero_()
    for e, part in itertools.product(range(5), ("gate", "up")):
        form = made.forms[f"model.layers.0.mlp.experts.{e}.{part}_proj.weight"]
        for tensor in forms.tensors(form):
            tensor.view(torch.uint8).fill_(1)
        start = (2 * e + (part == "up")) * inner
        whole = sole_part(ffn.gate_up)
        assert (whole.weight.view(torch.uint8)[start : start + inner] == 1).all()
        assert not whole.weight.view(torch.uint8)[start + inner :].any()
        filled = sum((t.view(torch.uint8) == 1).sum() for t in forms.tensors(whole))
        assert filled == (2 * e + 1 + (part == "up")) * sum(t.nbytes for t in forms.tensors(form))
    parts = {id(sole_part(m)): sole_part(m) for m in (ffn.gate_up, ffn.down)}
    held = sum(t.untyped_storage().nbytes() for p in parts.values() for t in forms.tensors(p))
    assert held == ffn.gate_up.nbytes + ffn.down.nbytes


def test_experts_of_several_forms_lie_in_several():
    """In the order of the experts, neighbours of one form together."""
    layout = packed_experts(SPECS)
    made = allocate_all(attrs.evolve(small(), hidden_size=48), "meta", torch.bfloat16, layout)
    gate_up = made.weights.layers[0].mlp.gate_up
    assert sole_part(gate_up) is None
    kinds = [type(part).__name__ for part in gate_up.stack.parts]
    assert kinds == ["Fp8Blocks", "Fp8Rows", "Int4", "Fp8Blocks", "Nvfp4", "Int4", "Fp8Rows",
                     "Nvfp4", "Fp8Blocks", "Fp8Rows"]  # fmt: skip


def test_the_layout_is_read_from_the_names():
    """Per layer, since the MTP layer is often stored in another way than the rest."""
    assert layout_of({"model.norm.weight", "model.layers.0.mlp.experts.down_proj"}) == Layout()
    assert layout_of({"mtp.norm.weight"}) == Layout(mtp=True)
    one = "model.layers.1.mlp.experts.17.up_proj.weight"
    assert layout_of({one, "model.layers.0.mlp.experts.gate_up_proj"}) == Layout(
        split_experts=frozenset({"model.layers.1."})
    )
    assert layout_of({"mtp.layers.0.mlp.experts.0.up_proj.weight"}) == Layout(
        True, frozenset({"mtp.layers.0."})
    )
