"""Copies in wide elements."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from flashrt.engine.moving import WIDE, as_wide

DTYPES = (torch.bfloat16, torch.float32)


@given(
    dtype=st.sampled_from(DTYPES),
    rows=st.integers(1, 9),
    width=st.sampled_from((1, 3, 4, 8, 12, 16, 256)),
    start=st.integers(0, 4),
)
def test_a_copy_of_a_part_has_every_bit_of_it(dtype: torch.dtype, rows: int, width: int, start):
    """NaNs with a payload too, in whichever elements they were moved; nothing else is touched."""
    bits = torch.randint(0, 256, (2, 14, width * dtype.itemsize), dtype=torch.uint8)
    source = bits.view(dtype)[:, start : start + rows]
    target = torch.zeros(2, 15, width, dtype=dtype)

    as_wide(target[:, 1 : 1 + rows]).copy_(as_wide(source))

    assert torch.equal(
        target[:, 1 : 1 + rows].contiguous().view(torch.uint8),
        source.contiguous().view(torch.uint8),
    )
    assert not target[:, 0].any()
    assert not target[:, 1 + rows :].any()


@pytest.mark.parametrize(("width", "wide"), [(256, True), (8, True), (4, False), (0, False)])
def test_elements_are_wide_where_rows_can_be_seen_so(width: int, wide: bool):
    """bfloat16: 8 values are 16 bytes."""
    part = torch.zeros(2, 8, width, dtype=torch.bfloat16)[:, 1:5]

    assert (as_wide(part).dtype == WIDE) == wide


def test_what_cannot_be_seen_so_stays_as_it_is():
    """Another order of its values, or a start between two wide elements."""
    values = torch.arange(64, dtype=torch.float32)

    for part in (values.view(8, 8).T, values[1:33].view(4, 8), values[3]):
        assert as_wide(part) is part
