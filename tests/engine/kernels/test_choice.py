"""Which model runs where. Needs no device."""

import attrs
import pytest
import torch

from flashrt.engine.buffers import Buffers
from flashrt.engine.config import MoeConfig
from flashrt.engine.kernels import fingerprint, head_copy_bytes, knows, model_for, usable
from flashrt.engine.matrix import Packed
from flashrt.engine.model import Model
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


def test_kernels_know_packed_matrices_of_dense_models():
    """A mixture with any goes by torch."""
    moe = MoeConfig(experts=5, experts_per_row=2, intermediate_size=24, shared_intermediate_size=40)

    assert knows(CONFIG, packed=True)
    assert not knows(attrs.evolve(CONFIG, moe=moe), packed=True)


def test_a_head_of_drafts_is_copied_where_kernels_draft_by_a_plain_one():
    """A byte a weight and a scale a row; a packed head needs no copy, and no copy is needed where
    nothing drafts or torch does."""
    cuda, with_mtp = torch.device("cuda"), attrs.evolve(CONFIG, mtp_layers=1)
    copied = CONFIG.vocab_size * (64 + 4)
    moe = MoeConfig(experts=5, experts_per_row=2, intermediate_size=24, shared_intermediate_size=40)

    assert head_copy_bytes(with_mtp, cuda) == copied
    assert head_copy_bytes(with_mtp, cuda, packed=True) == copied
    assert head_copy_bytes(with_mtp, cuda, packed=True, packed_head=True) == 0
    assert head_copy_bytes(attrs.evolve(with_mtp, moe=moe), cuda, packed=True) == 0
    assert head_copy_bytes(CONFIG, cuda) == head_copy_bytes(with_mtp, CPU) == 0
