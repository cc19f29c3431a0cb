"""A matrix rounded to 8 bits, with what that may cost the product of each of its rows.

A row w of the matrix is scale * q + e, q whole numbers of -127 to 127. For any x that is itself
y + d, where the product of q and y is exact,

    w x = scale * (q y) + e x + scale * (q d)

so by Cauchy and Schwarz |e| |x| + |scale q| |d| is the most that scale * (q y) is off. The product
by the matrix itself is off too, since float32 sums are rounded: what that costs at most is counted
with |e|, so that the bound holds between what is computed here and what is computed there.
"""

import attrs
import torch
from torch import Tensor

LARGEST = 127

COLUMNS_MAX = (2**31 - 1) // LARGEST**2
"""Of a matrix whose products with whole numbers of 8 bits are exact in int32."""

SCALE_MIN = 2.0**-100
"""So that no product with a scale falls below what float32 holds."""

SLICE = 2048
"""Rows that are rounded at a time, in float64."""


def summing(columns: int) -> float:
    """How far a float32 sum of so many products of two rows is from the true one, at most, by the
    product of their lengths.

    Each of `columns` additions may lose 2^-24 of what is there, and as much of what is added where
    a matrix unit adds 16 at a time and cuts off; that is taken twice, and some for what a bound is
    itself rounded by.
    """
    return (columns + 64) * 2.0**-23


@attrs.frozen(eq=False)
class NarrowMatrix:
    """[N, K] in 8 bits."""

    weight: Tensor
    """[N, K] int8."""
    scale: Tensor
    """[N] float32."""
    error: Tensor
    """[N] float32: not less than |e|, and what summing costs, by the length of x."""
    length: Tensor
    """[N] float32: not less than |w| and |scale q|, by the length of d."""

    @classmethod
    def of(cls, matrix: Tensor) -> "NarrowMatrix":
        """Takes N * (K + 12) bytes. A row that is not finite has an error that is not either."""
        n, device = len(matrix), matrix.device
        weight = torch.empty(matrix.shape, dtype=torch.int8, device=device)
        facts = torch.empty(3, n, dtype=torch.float32, device=device)
        for lo in range(0, n, SLICE):
            part = matrix[lo : lo + SLICE].double()
            weight[lo : lo + SLICE], facts[:, lo : lo + SLICE] = _rounded(part)
        return cls(weight, *facts)


def narrow_bytes(rows: int, columns: int) -> int:
    """What the copy of such a matrix takes."""
    return rows * (columns + 3 * torch.float32.itemsize)


def _rounded(rows: Tensor) -> tuple[Tensor, Tensor]:
    """Rows [n, K] float64 -> int8, and scale, error and length [3, n] float64."""
    scale = (rows.abs().amax(-1) / LARGEST).clamp(min=SCALE_MIN).float().double()
    whole = (rows / scale[:, None]).round().clamp(-LARGEST, LARGEST)
    again = whole * scale[:, None]
    length = torch.maximum(rows.norm(dim=-1), again.norm(dim=-1))
    error = (rows - again).norm(dim=-1) + summing(rows.shape[1]) * length
    # float32 rounds to the nearest, and what reads these multiplies and adds.
    up = 1 + 2.0**-20
    return whole.to(torch.int8), torch.stack((scale, error * up, length * up))
