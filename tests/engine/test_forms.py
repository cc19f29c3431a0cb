"""Packed forms: what their numbers mean."""

import attrs
import pytest
import torch
from torch import Tensor

from flashrt.engine import forms
from flashrt.engine.forms import FormSpec, Fp8Blocks, Fp8Rows, Int4, Nvfp4, nibbles, words
from tests.engine.metering import Meter

N, K = 200, 352
DRAW = torch.Generator().manual_seed(3)


def bytes_(*shape: int) -> Tensor:
    """Any bits."""
    return torch.randint(256, shape, generator=DRAW, dtype=torch.uint8)


def e4m3(*shape: int) -> Tensor:
    """Any finite numbers."""
    return torch.randn(shape, generator=DRAW).mul(30).to(torch.float8_e4m3fn)


def scales(*shape: int) -> Tensor:
    """Above 0."""
    return torch.rand(shape, generator=DRAW) + 0.01


FORMS = {
    "fp8 128x128": Fp8Blocks(e4m3(N, K), scales(2, 3)),
    "fp8 per row": Fp8Rows(e4m3(N, K), scales(N)),
    "int4": Int4(
        bytes_(N, K // 2).view(torch.int32),
        scales(N, K // 32).bfloat16(),
        bytes_(N, K // 32) % 17,
    ),
    "nvfp4": Nvfp4(bytes_(N, K // 2).view(torch.int32), e4m3(N, K // 16), scales(N)),
}


def one_by_one(form: forms.Form, i: int, j: int) -> float:
    """The number at [i, j], by the words of the form's docstring."""
    match form:
        case Fp8Blocks():
            row = i + form.first
            return float(form.weight[i, j].float() * form.scale[row // 128, j // 128])
        case Fp8Rows():
            return float(form.weight[i, j].float() * form.scale[i])
        case Int4():
            word, group = int(form.weight[i, j // 8]) & 0xFFFFFFFF, j // 32
            number = word >> 4 * (j % 8 // 2 + 4 * (j % 2)) & 15
            return float((number - int(form.zero[i, group])) * form.scale[i, group].float())
        case Nvfp4():
            word = int(form.weight[i, j // 8]) & 0xFFFFFFFF
            code = word >> 4 * (j % 8 // 2 + 4 * (j % 2)) & 15
            exponent, half = code >> 1 & 3, code & 1
            size = half / 2 if exponent == 0 else 2.0 ** (exponent - 1) * (1 + half / 2)
            signed = torch.tensor(-size if code & 8 else size)
            return float(signed * form.scale[i, j // 16].float() * form.row_scale[i])


@pytest.mark.parametrize("kind", FORMS)
def test_dense_numbers_are_what_each_number_means(kind):
    """Bit for bit in float32, at random places; and rounded once to bfloat16."""
    form = FORMS[kind]
    assert form.columns == K
    whole = form.dense(torch.float32)
    for i, j in torch.randint(1 << 20, (300, 2), generator=DRAW).tolist():
        assert float(whole[i % N, j % K]) == one_by_one(form, i % N, j % K)
    assert torch.equal(form.dense(torch.bfloat16), whole.bfloat16())


@pytest.mark.parametrize("kind", FORMS)
def test_cut_rows_mean_what_they_meant(kind):
    """Anywhere, also inside a block of scales, and cut again; the memory is the same."""
    form = FORMS[kind]
    whole = form.dense(torch.float32)
    for start, stop in ((0, N), (0, 1), (127, 129), (100, 180), (130, N)):
        part = form.cut(start, stop)
        assert part.weight.data_ptr() == form.weight[start].data_ptr()
        assert torch.equal(part.dense(torch.float32), whole[start:stop])
        again = part.cut(1, stop - start) if stop - start > 1 else part
        assert torch.equal(again.dense(torch.float32), whole[stop - len(again.weight) : stop])


@pytest.mark.parametrize("scale_dtype", [torch.bfloat16, torch.float16])
def test_wide_int4_means_its_numbers(scale_dtype):
    """Each half of a span in one half of its bytes; cut rows are views of the same memory."""
    n, k = 40, 512
    form = Int4.empty(FormSpec(forms.INT4, 128, scale_dtype), n, k, torch.device("cpu"))
    assert form.pairs is not None
    numbers, zeros = bytes_(n, k) % 16, bytes_(n, k // 128) % 17
    form.place(numbers[:24], 0)
    form.place(numbers[24:], 24)
    form.scale.copy_(scales(n, k // 128))
    form.zero.copy_(zeros)

    assert torch.equal(form.numbers(), numbers)
    for i, j in torch.randint(1 << 20, (200, 2), generator=DRAW).tolist():
        i, j = i % n, j % k
        byte = int(form.weight.view(torch.uint8)[i, j // 256 * 128 + j % 128])
        number = byte >> 4 * (j % 256 // 128) & 15
        scale = form.scale[i, j // 128].float()
        assert form.dense(torch.float32)[i, j] == (number - int(zeros[i, j // 128])) * scale
    part = form.cut(8, 40).cut(0, 20)
    assert torch.equal(part.dense(torch.float32), form.dense(torch.float32)[8:28])
    assert part.pairs is not None
    assert part.pairs.data_ptr() == form.pairs[:, 8:].data_ptr()


def test_int4_lies_wide_where_a_kernel_can_read_it():
    """Whole spans, groups of whole blocks, scales of 16 bits, and where it is asked for."""
    spec = FormSpec(forms.INT4, 128, torch.bfloat16)
    assert spec.lies_wide(512)
    assert not spec.lies_wide(384)
    assert not attrs.evolve(spec, group=64).lies_wide(512)
    assert not attrs.evolve(spec, scale_dtype=torch.float32).lies_wide(512)
    assert not attrs.evolve(spec, wide=False).lies_wide(512)


@pytest.mark.parametrize("period", [64, 160, 200])
def test_blocks_begin_anew_in_each_of_several_matrices(period):
    """As if each lay by itself, wherever rows are cut; an empty form has room for just that."""
    matrices = [Fp8Blocks(e4m3(period, K), scales(-(-period // 128), 3)) for _ in range(4)]
    weight, scale = (
        torch.cat([getattr(m, name) for m in matrices]) for name in ("weight", "scale")
    )
    form, meant = (
        Fp8Blocks(weight, scale, period=period),
        [m.dense(torch.float32) for m in matrices],
    )
    assert torch.equal(form.dense(torch.float32), torch.cat(meant))
    for start, stop in (
        (period, 2 * period),
        (1, period + 1),
        (130, 4 * period),
        (0, 2),
        (199, 256),
    ):
        part = form.cut(start, stop)
        assert torch.equal(part.dense(torch.float32), torch.cat(meant)[start:stop])
        again = part.cut(1, stop - start)
        assert torch.equal(again.dense(torch.float32), torch.cat(meant)[start + 1 : stop])
    for n in (4 * period, 3 * period + 1):
        made = forms.empty(FormSpec("fp8 128x128", period=period), n, K, torch.device("cpu"))
        assert made.dense(torch.float32).shape == (n, K)
        assert made.scale.shape[0] == 3 * -(-period // 128) + -(-(n - 3 * period) // 128)


@pytest.mark.parametrize("kind", FORMS)
def test_an_empty_form_has_the_tensors_of_a_full_one(kind):
    """Of the shapes and dtypes that their docstrings name, and no more memory."""
    spec = FormSpec(kind, 32, torch.bfloat16) if kind == "int4" else FormSpec(kind)
    made = forms.empty(spec, N, K, torch.device("cpu"))
    pairs = zip(forms.tensors(made), forms.tensors(FORMS[kind]), strict=True)
    assert all((ours.shape, ours.dtype) == (full.shape, full.dtype) for ours, full in pairs)


def test_words_hold_eight_numbers_the_lowest_first():
    """There and back, the sign bit included."""
    numbers = torch.tensor([[1, 2, 3, 4, 5, 6, 7, 15, 0, 0, 0, 0, 0, 0, 0, 8]], dtype=torch.uint8)
    packed = words(numbers)
    assert [word & 0xFFFFFFFF for word in packed[0].tolist()] == [0xF7654321, 0x80000000]
    assert torch.equal(nibbles(packed), numbers)


@pytest.mark.parametrize("kind", FORMS)
def test_making_numbers_dense_holds_no_more_than_is_said(kind):
    """Counted operation by operation, the result included."""
    with Meter() as meter:
        kept = FORMS[kind].dense(torch.float32)
    assert kept.nbytes <= meter.peak <= forms.DENSE_PEAK * N * K
