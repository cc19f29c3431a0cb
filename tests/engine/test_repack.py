"""Every spelling of a matrix becomes a form that means its numbers, or is refused by tensor."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from flashrt.engine import forms, repack
from flashrt.engine.headers import StoredTensor
from flashrt.engine.repack import Staged, spec_of, targets
from flashrt.engine.spellings import StoredMatrix, sort_stored
from flashrt.engine.streaming import DTYPES
from flashrt.errors import CannotServe
from tests.engine.packers import PACKERS, Pack, fits, int4_awq, int4_gptq, int4_packed

NAMES = {dtype: name for name, dtype in DTYPES.items()}
PACKED = [name for name in PACKERS if name != "plain"]
CPU = torch.device("cpu")
WHOLE_SCALE_ROUNDING = 2**-22
"""Relative. A divisor is turned into a multiplier once, and so rounded twice more than a division
would be; every other number is the packer's own bit for bit."""


def matrix(n: int, k: int, seed: int = 0) -> Tensor:
    """With rows of very different sizes."""
    draw = torch.Generator().manual_seed(seed)
    return torch.randn(n, k, generator=draw) * torch.rand(n, 1, generator=draw) * 0.2


def stored_as(tensors: dict[str, Tensor], offset: int = 1) -> StoredMatrix:
    """As headers tell of it."""
    file = Path("model.safetensors")
    found = [
        StoredTensor(f"a.{ending}", file, NAMES[t.dtype], tuple(t.shape), 0, t.nbytes)
        for ending, t in tensors.items()
    ]
    return sort_stored(found, offset).matrices["a.weight"]


def loaded(pack: Pack, offset: int = 1) -> forms.Form:
    """As the loader fills it."""
    n, k = pack.dense.shape
    stored = stored_as(pack.tensors, offset)
    form = forms.empty(spec_of(stored, n, k), n, k, CPU)
    for tensor, target in targets(stored, form):
        source = pack.tensors[tensor.name.removeprefix("a.")]
        if isinstance(target, Staged):
            target.place(source)
        else:
            target.view(-1).copy_(source.reshape(-1))
    return form


def assert_means(form: forms.Form, pack: Pack, name: str) -> None:
    """The packer's numbers; bit for bit but for the rounding above."""
    rounding = WHOLE_SCALE_ROUNDING if name == "nvfp4, divided" else 0
    torch.testing.assert_close(form.dense(torch.float32), pack.dense, rtol=rounding, atol=0)


@pytest.mark.parametrize("name", PACKED)
@pytest.mark.parametrize(("n", "k"), [(64, 64), (200, 352), (136, 160), (8, 512)])
def test_numbers_mean_what_the_quantizer_meant(name, n, k):
    """Of every spelling and of shapes on and off the blocks."""
    pack = PACKERS[name](matrix(n, k))
    assert_means(loaded(pack), pack, name)


@pytest.mark.parametrize("group", [128, 256, 512])
@pytest.mark.parametrize("make", [int4_packed, int4_gptq, int4_awq])
def test_int4_of_long_groups_lies_wide_and_means_the_same(make, group):
    """Where rows are whole spans of columns; what is beside the numbers is one tensor."""
    pack = make(matrix(72, 1024), group=group)
    form = loaded(pack)
    assert isinstance(form, forms.Int4)
    assert form.pairs is not None
    assert_means(form, pack, "")
    held = sum(tensor.nbytes for tensor in forms.tensors(form))
    assert held == 72 * 1024 // 2 + 72 * 1024 // group * 4


@given(
    name=st.sampled_from(PACKED), n=st.integers(1, 40), k=st.integers(1, 12), seed=st.integers(0, 9)
)
@settings(max_examples=60)
def test_any_shape_that_a_quantizer_can_write_is_read(name, n, k, seed):
    """Rows by the eight where it packs them so, and columns by the 32."""
    n, k = 8 * n if not fits(name, n, 32) else n, 32 * k
    pack = PACKERS[name](matrix(n, k, seed))
    assert_means(loaded(pack), pack, name)


def test_repacking_goes_by_slices(monkeypatch):
    """Where they end changes nothing."""
    pack = PACKERS["int4 AWQ"](matrix(200, 352))
    for words in (1, 352 * 3, 1 << 19):
        monkeypatch.setattr(repack, "SLICE_WORDS", words)
        assert_means(loaded(pack), pack, "int4 AWQ")


def test_the_offset_of_stored_zeros_counts():
    """The same bytes mean other numbers; 16 is a zero like any other."""
    pack = int4_gptq(matrix(16, 64), offset=0)
    assert_means(loaded(pack, 0), pack, "")
    shifted = loaded(pack, 1)
    torch.testing.assert_close(
        shifted.dense(torch.float32),
        pack.dense - shifted.scale.float().repeat_interleave(32, 1),
    )
    pack.tensors["qzeros"].fill_(-1)
    assert loaded(pack, 1).zero.unique().tolist() == [16]


def changed(name: str, ending: str, change: Callable[[Tensor], Tensor]) -> Pack:
    """A pack of a matrix [64, 96] with one odd tensor."""
    pack = PACKERS[name](matrix(64, 96))
    pack.tensors[ending] = change(pack.tensors[ending])
    return pack


ODD = {
    "numbers of another shape": ("fp8 blocks", "weight", lambda t: t[:-1], "[63, 96]"),
    "scales of another block": (
        "fp8 blocks",
        "weight_scale_inv",
        lambda t: t.expand(2, 3),
        "[2, 3]",
    ),
    "too few rows of scales": ("fp8 rows", "weight_scale", lambda t: t[:32], "[32, 1]"),
    "scales of eight bits": (
        "fp8 rows",
        "weight_scale",
        lambda t: t.to(torch.float8_e4m3fn),
        "stored as F8_E4M3",
    ),
    "odd groups": ("int4 packed", "weight_scale", lambda t: t.repeat(1, 4)[:, :12], "[64, 12]"),
    "groups that do not divide": ("int4 packed", "weight_scale", lambda t: t[:, :2][:, [0] * 5],
                                  "[64, 5]"),
    "no groups": ("int4 packed", "weight_scale", lambda t: t[:, 0], "[64]"),
    "eight bits": ("int4 packed", "weight_packed", lambda t: t.repeat(1, 2), "[64, 24]"),
    "zeros along the columns": (
        "int4 packed with zeros",
        "weight_zero_point",
        lambda t: t.T,
        "[3, 8]",
    ),
    "another order": (
        "int4 packed, ordered", "weight_g_idx", lambda t: t.flip(0), "desc_act or actorder"),
    "another matrix's shape": (
        "int4 packed", "weight_shape", lambda t: t.flip(0), "says [96, 64]"),
    "GPTQ in another order": ("int4 GPTQ", "g_idx", lambda t: t.roll(1), "desc_act or actorder"),
    "GPTQ of eight bits": ("int4 GPTQ", "qweight", lambda t: t.repeat(2, 1), "[24, 64]"),
    "GPTQ zeros of eight bits": ("int4 GPTQ", "qzeros", lambda t: t.repeat(1, 2), "[3, 16]"),
    "AWQ scales the other way round": ("int4 AWQ", "scales", lambda t: t.T, "[64, 3]"),
    "scales of 32 columns": (
        "nvfp4, multiplied", "weight_scale", lambda t: t[:, ::2], "[64, 3]"),
    "a scale for each row": (
        "nvfp4, multiplied", "weight_scale_2", lambda t: t.expand(64), "[64]"),
    "a divisor of 0": ("nvfp4, divided", "weight_global_scale", torch.zeros_like, "is 0.0"),
    "a scale below 0": ("nvfp4, multiplied", "weight_scale_2", lambda t: -t, "above 0"),
}  # fmt: skip


@pytest.mark.parametrize(("name", "ending", "change", "words"), ODD.values(), ids=ODD.keys())
def test_a_tensor_that_is_odd_is_refused(name, ending, change, words):
    """From its header where that shows it, with its name, what it is and what is read; else from
    its values, whose refusal the loader completes with the name."""
    with pytest.raises((CannotServe, ValueError)) as refused:
        loaded(changed(name, ending, change))
    assert words in str(refused.value)
    if refused.type is CannotServe:
        assert re.match(rf"tensor a.{ending} in model.safetensors ", str(refused.value))
        assert "read are FP8" in str(refused.value) or "groups of 32" in str(refused.value)


@pytest.mark.parametrize(("name", "n", "k"), [("nvfp4, divided", 8, 40), ("int4 GPTQ", 60, 64)])
def test_a_matrix_that_cannot_be_packed_like_this_is_refused(name, n, k):
    """The config describes another one than the files hold."""
    stored = stored_as(PACKERS[name](matrix(64, 96)).tensors)
    with pytest.raises(CannotServe, match=r"config\.json describes another model"):
        spec_of(stored, n, k)
