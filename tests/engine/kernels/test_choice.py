"""Which model runs where. Needs no device."""

import re
from collections.abc import Mapping

import attrs
import pytest
import torch

from flashrt.engine.buffers import Buffers
from flashrt.engine.config import ModelConfig, MoeConfig
from flashrt.engine.forms import FP8_BLOCKS, INT4, FormSpec
from flashrt.engine.kernels import (
    copies_head,
    finds_best,
    fingerprint,
    head_copy_bytes,
    knows,
    model_for,
    reads,
    usable,
)
from flashrt.engine.matrix import Packed
from flashrt.engine.model import Model
from flashrt.engine.narrow import COLUMNS_MAX
from flashrt.engine.tensor_plan import HEAD, Layout, allocate_all
from flashrt.engine.weights import ModelWeights
from tests.engine.models import PLAIN, config_of, reference, weights_of

CPU = torch.device("cpu")
CONFIG = config_of(reference(PLAIN))


def test_a_cpu_runs_by_torch():
    """Kernels are neither usable there nor part of what decides its bits."""
    weights = weights_of(reference(PLAIN), torch.float32, "cpu")
    buffers = Buffers.allocate(CONFIG, 128, CPU, torch.float32)

    assert not usable(CPU)
    assert fingerprint(CPU) == "torch alone"
    assert type(model_for(CONFIG, weights, buffers)) is Model


@pytest.mark.parametrize("names", [("head_dim",), ("linear_key_dim", "linear_value_dim")], ids=str)
@pytest.mark.parametrize(("side", "known"), [(16, True), (128, True), (8, False), (96, False)])
def test_kernels_know_heads_of_powers_of_two(names: tuple[str, ...], side: int, known: bool):
    """From 16 on, which is what the matrix units take."""
    assert knows(attrs.evolve(CONFIG, **dict.fromkeys(names, side))) is known


@pytest.mark.parametrize(("keys", "values", "known"), [(128, 32, False), (128, 64, True)])
def test_kernels_do_not_know_few_values_beside_long_keys(keys: int, values: int, known: bool):
    """The compiler makes wrong code of such a product."""
    config = attrs.evolve(CONFIG, linear_key_dim=keys, linear_value_dim=values)

    assert knows(config) is known


def test_kernels_know_mixtures_of_experts():
    """Of any width; their heads are asked the same as those of a dense model."""
    moe = MoeConfig(experts=5, experts_per_row=2, intermediate_size=24, shared_intermediate_size=40)

    assert knows(attrs.evolve(CONFIG, moe=moe))
    assert not knows(attrs.evolve(CONFIG, moe=moe, head_dim=96))


def test_weights_tell_whether_any_matrix_is_packed():
    """One is enough, wherever it is."""
    plain = weights_of(reference(PLAIN), torch.float32, "cpu")
    one = Packed((plain.lm_head[:20], plain.lm_head[20:]), torch.float32)
    mlp = attrs.evolve(plain.layers[1].mlp, down=one)
    layer = attrs.evolve(plain.layers[1], mlp=mlp)
    inside = attrs.evolve(plain, layers=(*plain.layers[:1], layer, *plain.layers[2:]))

    assert not plain.packed
    assert attrs.evolve(plain, lm_head=one).packed
    assert inside.packed


MIXED = attrs.evolve(
    CONFIG,
    mtp_layers=1,
    moe=MoeConfig(experts=5, experts_per_row=2, intermediate_size=24, shared_intermediate_size=40),
)
FP8, SHORT = FormSpec(FP8_BLOCKS), FormSpec(INT4, 8, torch.bfloat16)


def meant(config: ModelConfig, specs: Mapping[str, FormSpec] = {}) -> ModelWeights:
    """Weights without memory, of which those whose names match are packed."""
    plain = allocate_all(config, "meta", torch.bfloat16, Layout(config.mtp_layers > 0))
    names = [*plain.slots, *(f"{at}.{e}.{part}_proj.weight" for at in routed(config)
                             for e in range(5) for part in ("gate", "up", "down"))]  # fmt: skip
    quantized = {n: spec for n in names for like, spec in specs.items() if re.search(like, n)}
    layout = Layout(config.mtp_layers > 0, quantized=quantized)
    return allocate_all(config, "meta", torch.bfloat16, layout).weights


def routed(config: ModelConfig) -> list[str]:
    """What the names of routed experts begin with."""
    at = [f"model.layers.{i}" for i in range(len(config.layer_types))]
    at += ["mtp.layers.0"] * (config.mtp_layers > 0)
    return [f"{layer}.mlp.experts" for layer in at if config.moe]


@pytest.mark.parametrize(
    ("specs", "read"),
    [
        ({}, True),
        ({r"proj\.weight": FP8}, True),
        ({r"experts\..*weight": SHORT}, True),
        ({r"gate_proj\.weight|up_proj\.weight": SHORT, r"down_proj\.weight": FP8}, True),
        ({r"experts\..*weight": SHORT, r"shared_expert\..*weight": FP8}, True),
        ({r"shared_expert\.down_proj\.weight": FP8}, True),
        ({r"layers\.1\..*experts\.[0-3]\..*weight": SHORT}, False),
        ({r"layers\.1\..*experts\.3\..*": FP8, r"experts\.[0124]\..*": SHORT}, False),
        ({r"shared_expert\.gate_proj\.weight": FP8}, False),
        ({r"mtp.*experts\.\d\.up_proj\.weight": FP8}, False),
    ],
    ids=str,
)
def test_kernels_read_mixtures_whose_experts_are_of_one_form(specs, read):
    """In each product; the shared expert may have another, and other layers others."""
    assert reads(meant(MIXED, specs)) is read


def test_kernels_read_whatever_a_dense_model_is_packed_in():
    """Several forms in one matrix, too."""
    assert reads(meant(CONFIG, {"up_proj": FP8, "in_proj_qkv": SHORT, "q_proj": FP8}))


def test_a_plain_head_is_copied_where_kernels_run():
    """A byte a weight, and a scale and two bounds a row; a packed head has no copy, nor one that
    torch computes."""
    cuda, with_mtp = torch.device("cuda"), attrs.evolve(CONFIG, mtp_layers=1)
    copied = CONFIG.vocab_size * (64 + 12)
    plain, packed = meant(with_mtp), {"up_proj": FP8}

    assert head_copy_bytes(with_mtp, plain, cuda) == copied
    assert head_copy_bytes(with_mtp, meant(with_mtp, packed), cuda) == copied
    assert head_copy_bytes(with_mtp, meant(with_mtp, packed | {HEAD: FP8}), cuda) == 0
    assert head_copy_bytes(MIXED, meant(MIXED, {"experts": FP8}), cuda) == copied
    assert head_copy_bytes(MIXED, meant(MIXED, packed), cuda) == 0
    assert head_copy_bytes(CONFIG, meant(CONFIG), cuda) == copied
    assert head_copy_bytes(with_mtp, plain, CPU) == 0


def test_a_float32_head_is_copied_for_drafts_alone():
    """Its products are not the matrix unit's, so the best ids are found by all scores."""
    for mtp_layers in (0, 1):
        layout = Layout(mtp_layers > 0)
        config = attrs.evolve(CONFIG, mtp_layers=mtp_layers)
        weights = allocate_all(config, "meta", torch.float32, layout).weights

        assert copies_head(weights) is bool(mtp_layers)
        assert not finds_best(weights)


def test_no_head_is_copied_whose_products_may_not_fit_in_32_bits():
    """A sum of so many products of two numbers of 8 bits."""
    weights = meant(CONFIG)
    wide, wider = (
        attrs.evolve(weights, lm_head=torch.empty(4, k, dtype=torch.bfloat16, device="meta"))
        for k in (COLUMNS_MAX, COLUMNS_MAX + 1)
    )

    assert COLUMNS_MAX * 127 * 127 < 2**31 <= (COLUMNS_MAX + 1) * 127 * 127
    assert copies_head(wide)
    assert not copies_head(wider)
