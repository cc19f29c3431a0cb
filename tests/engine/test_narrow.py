"""A matrix in 8 bits, and what that costs."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from flashrt.engine.narrow import NarrowMatrix, narrow_bytes, summing

SEEDS = st.integers(0, 2**31)
LENGTHS = st.sampled_from((1e-30, 1e-3, 1.0, 1e4, 1e30))


def noise(*shape: int, seed: int) -> Tensor:
    """Seeded normal values."""
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def matrix_of(seed: int, rows: int, columns: int, length: float) -> Tensor:
    """bfloat16 rows, among them zeros, one with an outlier, and one with few values."""
    matrix = noise(rows, columns, seed=seed) * length
    matrix[0] = 0
    matrix[1, seed % columns] *= 1000
    matrix[2] = matrix[2].sign() * length
    return matrix.bfloat16()


def exact(copy: NarrowMatrix) -> Tensor:
    """[N, K] float64: what the copy stands for."""
    return copy.weight.double() * copy.scale.double()[:, None]


@given(SEEDS, st.integers(3, 40), st.integers(1, 200), LENGTHS)
def test_error_and_length_bound_what_was_rounded(seed, rows, columns, length):
    """By the row's length; |w| and the length of what stands for it are both below."""
    matrix = matrix_of(seed, rows, columns, length)
    copy, wanted = NarrowMatrix.of(matrix), matrix.double()

    spare = summing(columns) * copy.length.double()
    off = (wanted - exact(copy)).norm(dim=-1)

    assert torch.all(off + spare * 0.999 <= copy.error)
    assert torch.all(wanted.norm(dim=-1) <= copy.length)
    assert torch.all(exact(copy).norm(dim=-1) <= copy.length)


@given(SEEDS, st.integers(3, 40), st.integers(1, 200), LENGTHS, st.sampled_from((0.0, 0.01, 0.3)))
def test_no_product_is_off_by_more_than_the_bound(seed, rows, columns, length, moved):
    """With the rows that it costs most with, too: along what was lost of a row of the matrix."""
    matrix = matrix_of(seed, rows, columns, length)
    copy = NarrowMatrix.of(matrix)
    lost = matrix.double() - exact(copy)
    x = torch.cat((lost / lost.norm().clamp(min=1e-300), noise(4, columns, seed=seed + 1).double()))
    d = noise(*x.shape, seed=seed + 2).double() * moved

    off = x @ matrix.double().T - (x - d) @ exact(copy).T
    most = torch.outer(x.norm(dim=-1), copy.error.double())
    most += torch.outer(d.norm(dim=-1), copy.length.double())

    assert torch.all(off.abs() <= most)


@pytest.mark.parametrize("columns", [7, 300, 5120])
def test_the_bound_leaves_room_for_float32_sums(columns):
    """Of the numbers that are hardest to add, one by one, in either order."""
    values = noise(columns, seed=columns).abs() + 1
    ones = torch.ones(columns)
    for numbers in (values, values.sort(descending=True).values):
        total = torch.zeros(())
        for number in numbers:
            total = total + number
        wrong = abs(float(total) - float(values.double().sum()))
        assert wrong < summing(columns) * float(values.double().norm() * ones.norm()) / 2


def test_rows_are_rounded_to_the_nearest_of_255_numbers():
    """The largest of a row is one of them."""
    matrix = matrix_of(3, 50, 60, 1.0)
    copy = NarrowMatrix.of(matrix)

    assert copy.weight.abs().amax(-1)[1:].eq(127).all()
    assert torch.all((matrix.double() - exact(copy)).abs() <= copy.scale[:, None] * 0.5001)
    sizes = (copy.weight, copy.scale, copy.error, copy.length)
    assert sum(part.nbytes for part in sizes) == narrow_bytes(*matrix.shape)


def test_zeros_have_no_error():
    """And stay zeros."""
    copy = NarrowMatrix.of(torch.zeros(3, 5, dtype=torch.bfloat16))

    assert not copy.weight.any()
    assert not copy.error.any()


@pytest.mark.parametrize("bad", [torch.nan, torch.inf])
def test_a_row_that_is_not_finite_is_bounded_by_nothing(bad):
    """So whatever is said of it is believed to be anything; the others are as ever."""
    matrix = matrix_of(0, 6, 8, 1.0)
    matrix[4, 2] = bad

    assert torch.isfinite(NarrowMatrix.of(matrix).error).tolist() == [True] * 4 + [False, True]
