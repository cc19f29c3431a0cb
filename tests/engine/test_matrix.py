"""Stacks of rows in several forms behave as one matrix."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from flashrt.engine import matrix
from flashrt.engine.forms import Fp8Blocks
from flashrt.engine.matrix import Experts, Packed, cut, dense, dense_slices
from tests.engine.test_forms import FORMS, K, N

PLAIN = torch.randn(40, K, generator=torch.Generator().manual_seed(0))
PARTS = [PLAIN, *FORMS.values()]
ROWS = len(PLAIN) + 4 * N


def stack(dtype: torch.dtype = torch.float32) -> Packed:
    """A part of every kind."""
    return Packed(tuple(PARTS), dtype)


def whole() -> Tensor:
    """What it means."""
    return torch.cat([PLAIN, *(form.dense(torch.float32) for form in FORMS.values())])


def test_a_stack_has_the_attributes_of_a_tensor():
    """Those that callers ask for; its bytes are those of its parts."""
    packed = stack(torch.bfloat16)
    assert (len(packed), packed.shape, packed.dtype) == (ROWS, (ROWS, K), torch.bfloat16)
    assert packed.device == PLAIN.device
    assert packed.nbytes < whole().nbytes
    assert packed.nbytes == PLAIN.nbytes + sum(
        tensor.nbytes for form in FORMS.values() for tensor in matrix.tensors_of(form)
    )


@given(start=st.integers(0, ROWS - 1), count=st.integers(1, ROWS), slack=st.integers(0, 9))
@settings(max_examples=30)
def test_cut_rows_are_those_rows(start, count, slack):
    """Across parts, and cut again; a plain tensor is cut in the same way."""
    stop = min(start + count, ROWS)
    part = cut(stack(), start, stop)
    assert torch.equal(dense(part, 0, stop - start, torch.float32), whole()[start:stop])
    assert torch.equal(dense(stack(), start, stop, torch.float32), whole()[start:stop])
    inner = min(slack, stop - start - 1)
    again = cut(part, inner, stop - start)
    assert torch.equal(dense(again, 0, len(again), torch.float32), whole()[start + inner : stop])
    assert torch.equal(cut(whole(), start, stop), whole()[start:stop])


@pytest.mark.parametrize("period", [64, 160])
def test_forms_are_cut_apart_where_blocks_begin_anew(period):
    """Each piece lies in one matrix, and together they are all rows; other forms stay whole."""
    blocks = FORMS["fp8 128x128"]
    scale = torch.rand(4 * -(-period // 128), blocks.scale.shape[1])
    form = Fp8Blocks(blocks.weight, scale, first=30, period=period)
    pieces = matrix.apart(form)
    assert all(piece.first + len(piece.weight) <= period for piece in pieces)
    assert len(pieces) == -(-(30 + N) // period)
    whole = torch.cat([piece.dense(torch.float32) for piece in pieces])
    assert torch.equal(whole, form.dense(torch.float32))
    for part in PARTS:
        assert list(matrix.apart(part)) == [part]


@pytest.mark.parametrize("numbers", [1, K * 3, K * 128, K * 200, 1 << 22])
def test_slices_hold_no_more_than_is_said_and_all_rows_in_order(monkeypatch, numbers):
    """However many numbers a slice may have; one row is the least."""
    monkeypatch.setattr(matrix, "SLICE_NUMBERS", numbers)
    slices = list(dense_slices(stack(), torch.float32))
    assert torch.equal(torch.cat(slices), whole())
    assert max(map(len, slices)) <= max(1, numbers // K)


def test_experts_of_one_stack_are_counted_and_picked():
    """Each has its own rows, wherever a form begins."""
    packed = stack()
    experts = Experts(packed, 60)
    assert (len(experts), experts.nbytes) == (ROWS // 60, packed.nbytes)
    for expert in range(len(experts)):
        rows = whole()[60 * expert : 60 * expert + 60]
        assert torch.equal(dense(experts[expert], 0, 60, torch.float32), rows)


def test_a_layout_tells_what_a_product_may_depend_on():
    """Forms, their dtypes and sizes; not the values."""
    one, other = stack(), stack().cut(0, ROWS - 1)
    assert one.layout() == stack().layout() != other.layout()
