"""Which stored tensors stand for one matrix together, by their names and dtypes alone."""

from pathlib import Path

import pytest

from flashrt.engine import spellings
from flashrt.engine.headers import StoredTensor
from flashrt.engine.spellings import (
    COMPANIONS,
    FOREIGN,
    OF_ACTIVATIONS,
    SPELLINGS,
    Spelling,
    sort_stored,
)
from flashrt.errors import CannotServe

BASE = "model.layers.0.mlp.up_proj"


def tensor(ending: str, dtype: str, base: str = BASE) -> StoredTensor:
    """Only name and dtype count here."""
    return StoredTensor(base + ending, Path("model.safetensors"), dtype, (2, 2), 0, 4)


def written(spelling: Spelling) -> list[StoredTensor]:
    """Everything that the spelling needs."""
    return [tensor(spelling.data, spelling.dtype), *(tensor(e, "F32") for e in spelling.needed)]


@pytest.mark.parametrize("spelling", SPELLINGS, ids=lambda one: f"{one.name} {one.needed[0]}")
def test_a_matrix_is_known_by_its_numbers_and_their_scale(spelling):
    """In any order of tensors; its key is the plain one; scales of activations are put aside."""
    plain = tensor(".weight", "BF16", "model.norm")
    aside = [tensor(ending, "F32") for ending in OF_ACTIVATIONS]
    for found in (written(spelling), written(spelling)[::-1]):
        stored = sort_stored([*found, plain, *aside])
        (matrix,) = stored.matrices.values()
        assert matrix.spelling is spelling
        assert set(matrix.tensors.values()) == set(found)
        assert stored.plain == (plain,)
        assert stored.of_activations == tuple(aside)
        assert stored.keys == {BASE + ".weight", "model.norm.weight"}


def test_the_multimodal_prefix_is_no_part_of_the_key():
    """As for plain tensors."""
    base = "model.language_model." + BASE.removeprefix("model.")
    found = [tensor(".weight", "F8_E4M3", base), tensor(".weight_scale", "BF16", base)]
    assert sort_stored(found).keys == {BASE + ".weight"}


@pytest.mark.parametrize("spelling", SPELLINGS, ids=lambda one: f"{one.name} {one.needed[0]}")
def test_a_matrix_without_a_tensor_that_it_needs_is_refused(spelling):
    """Naming what is there and what is missing, and what is read instead."""
    for ending in spelling.needed:
        found = [one for one in written(spelling) if not one.name.endswith(ending)]
        with pytest.raises(CannotServe) as refused:
            sort_stored(found)
        words = str(refused.value)
        assert f"tensor {BASE}{spelling.data} in model.safetensors is {spelling.dtype}" in words
        assert BASE + ending in words
        assert "NVFP4" in words


@pytest.mark.parametrize("ending", sorted(COMPANIONS))
def test_a_tensor_of_a_quantizer_without_its_numbers_is_refused(ending):
    """Alone, or beside a plain matrix: a pack that was converted in part."""
    for beside, words in (([], "there is no"), ([tensor(".weight", "BF16")], "weight is BF16")):
        with pytest.raises(CannotServe) as refused:
            sort_stored([*beside, tensor(ending, "F32")])
        assert f"tensor {BASE}{ending} in" in str(refused.value)
        assert words in str(refused.value)


@pytest.mark.parametrize("spelling", SPELLINGS, ids=lambda one: f"{one.name} {one.needed[0]}")
def test_a_tensor_too_many_is_refused(spelling):
    """Of another quantizer, or the plain matrix beside the packed one."""
    foreign = next(e for e in (".qzeros", ".weight_scale_2") if e not in spelling.needed)
    others = [foreign] if spelling.data == ".weight" else [foreign, ".weight"]
    for ending in others:
        with pytest.raises(CannotServe) as refused:
            sort_stored([*written(spelling), tensor(ending, "BF16")])
        assert f"tensor {BASE}{ending} in" in str(refused.value)
        assert "left over" in str(refused.value)


@pytest.mark.parametrize("ending", FOREIGN)
def test_a_quantizer_that_is_not_read_is_named(ending):
    """With the tensor that gives it away, and what is read."""
    with pytest.raises(CannotServe) as refused:
        sort_stored([tensor(".weight", "U8"), tensor(".weight" + ending, "U8")])
    assert f"tensor {BASE}.weight{ending} in" in str(refused.value)
    assert FOREIGN[ending] in str(refused.value)
    assert spellings.READ in str(refused.value)


@pytest.mark.parametrize("ending", [".weight_packed", ".qweight"])
def test_numbers_of_an_unknown_dtype_are_refused(ending):
    """A name of ours with bits of somebody else."""
    with pytest.raises(CannotServe, match=rf"tensor {BASE}\{ending} in model.safetensors is I16"):
        sort_stored([tensor(ending, "I16"), tensor(".scales", "F16")])


def test_mxfp4_is_called_by_its_name():
    """It lacks nothing: its scales are of another kind."""
    with pytest.raises(CannotServe, match=r"up_proj\.weight_packed in .* is MXFP4, which is not"):
        sort_stored([tensor(".weight_packed", "U8"), tensor(".weight_scale", "U8")])


def test_only_the_layout_of_gptq_and_awq_has_an_offset():
    """It is no matter of the others' zeros."""
    offsets = {
        one.name: next(iter(sort_stored(written(one), 1).matrices.values())).zero_offset
        for one in SPELLINGS
    }
    assert {name for name, offset in offsets.items() if offset} == {"int4"}
