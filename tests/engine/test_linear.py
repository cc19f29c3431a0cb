"""Products for few rows: a row's bits are its own."""

import pytest
import torch

from flashrt.engine import matrix
from flashrt.engine.forms import DENSE_PEAK
from flashrt.engine.linear import GROUP, ROWS_MAX, block_linear, head_linear, rows_linear
from flashrt.engine.matrix import Packed, dense
from flashrt.engine.selfcheck import check_product, same_bits
from flashrt.errors import CannotServe
from tests.engine.metering import Meter
from tests.engine.test_forms import FORMS, K

DTYPES = (torch.float32, torch.bfloat16)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("product", [rows_linear, head_linear])
@pytest.mark.parametrize("shape", [(96, 64), (200, 96), (61, 64)])
def test_a_row_has_the_same_bits_among_any_number_of_rows(product, shape, dtype):
    """For 1, 2, 3, 5, 8, 16 and 64 rows, at every index, whatever the other rows hold."""
    draw = torch.Generator().manual_seed(1)
    weight = torch.randn(shape, generator=draw).to(dtype)
    x = torch.randn(ROWS_MAX, shape[1], generator=draw).to(dtype)
    alone = torch.cat([product(row[None], weight) for row in x])
    for count in (1, 2, 3, 5, 8, 16, 64):
        for start in range(0, ROWS_MAX - count + 1, 1 if count < GROUP else 7):
            rows = product(x[start : start + count], weight)
            assert same_bits(rows, alone[start : start + count])


@pytest.mark.parametrize("dtype", DTYPES)
def test_logits_keep_float32_sums(dtype):
    """The head's sums are not rounded to the weights' dtype, also past one widened block."""
    draw = torch.Generator().manual_seed(2)
    weight = torch.randn(8192 + 100, 32, generator=draw).to(dtype)
    x = torch.randn(2, 32, generator=draw).to(dtype)
    logits = head_linear(x, weight)
    assert logits.dtype == torch.float32
    torch.testing.assert_close(logits.double(), x.double() @ weight.double().T, atol=1e-4, rtol=0)


def test_the_check_at_start_refuses_a_product_that_knows_its_row():
    """A product whose bits depend on the index, or on the other rows, is named and refused."""

    def by_index(x, weight):
        y = rows_linear(x, weight)
        return y + torch.arange(len(y))[:, None] * 1e-6

    def by_neighbours(x, weight):
        return rows_linear(x, weight) + x.sum() * 1e-6

    weight = torch.randn(32, 64)
    check_product("sound", rows_linear, weight)
    for name, product in (("by index", by_index), ("by neighbours", by_neighbours)):
        with pytest.raises(CannotServe, match=name):
            check_product(name, product, weight)


def packed(dtype: torch.dtype) -> Packed:
    """A stack of every form, and what rows it is multiplied with."""
    plain = torch.randn(40, K, generator=torch.Generator().manual_seed(4)).to(dtype)
    return Packed((plain, *FORMS.values()), dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("product", [rows_linear, head_linear])
def test_a_row_keeps_its_bits_among_any_number_of_rows_of_a_packed_matrix(
    product, dtype, monkeypatch
):
    """Also where a slice ends inside a part."""
    monkeypatch.setattr(matrix, "SLICE_NUMBERS", 70 * K)
    weight = packed(dtype)
    x = torch.randn(ROWS_MAX, K, generator=torch.Generator().manual_seed(5)).to(dtype)
    alone = torch.cat([product(row[None], weight) for row in x])
    for count in (1, 2, 5, 16, 17, 64):
        for start in range(0, ROWS_MAX - count + 1, 9):
            rows = product(x[start : start + count], weight)
            assert same_bits(rows, alone[start : start + count])


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("product", [rows_linear, head_linear, block_linear])
def test_a_packed_matrix_is_multiplied_as_its_dense_numbers(product, dtype):
    """Against float64 sums over the dense numbers: in float32, and rounded once, logits not."""
    weight = packed(dtype)
    x = torch.randn(20, K, generator=torch.Generator().manual_seed(6)).to(dtype)
    of = torch.float32 if product is head_linear else dtype
    numbers = dense(weight, 0, len(weight), of).double().T
    exact, size = x.double() @ numbers, x.double().abs() @ numbers.abs()
    got = product(x, weight)
    assert got.dtype == of
    rounding = 0 if of == torch.float32 else 2**-8
    assert ((got.double() - exact).abs() <= 1e-6 * size + rounding * exact.abs()).all()


def test_a_packed_product_holds_no_more_than_is_said(monkeypatch):
    """Beside its rows and its result."""
    monkeypatch.setattr(matrix, "SLICE_NUMBERS", 64 * K)
    weight, x = packed(torch.float32), torch.randn(16, K)
    with Meter() as meter:
        result = rows_linear(x, weight)
    assert meter.peak <= 64 * K * DENSE_PEAK + 3 * result.nbytes
