"""Attention of few rows and of blocks over the static buffers."""

import pytest
import torch

from flashrt.engine.attention import SPLIT, attend_block, attend_row, attend_rows
from flashrt.engine.selfcheck import same_bits

ROWS, DIM = 3 * SPLIT, 16


def random_kv(kv_heads: int, dtype: torch.dtype = torch.float32):
    draw = torch.Generator().manual_seed(0)
    return torch.randn(2, kv_heads, ROWS, DIM, generator=draw).to(dtype)


def random_q(rows: int, heads: int, dtype: torch.dtype = torch.float32):
    draw = torch.Generator().manual_seed(1)
    return torch.randn(rows, heads, DIM, generator=draw).to(dtype)


def plain(q, kv, position):
    """Softmax attention in float64, row by row."""
    keys, values = kv.double().repeat_interleave(q.shape[1] // kv.shape[1], dim=1)
    rows = []
    for r, row in enumerate(q.double()):
        end = position + r + 1
        scores = torch.einsum("hd,hsd->hs", row, keys[:, :end]) * DIM**-0.5
        rows.append(torch.einsum("hs,hsd->hd", scores.softmax(-1), values[:, :end]))
    return torch.stack(rows)


@pytest.mark.parametrize("heads", [(2, 2), (4, 2), (8, 1), (3, 1)])
@pytest.mark.parametrize("position", [0, 63, SPLIT - 2, 2 * SPLIT - 1])
def test_rows_and_blocks_are_softmax_attention(heads, position):
    """Both equal the plain formula, also over the border of a split and with shared key heads."""
    q, kv = random_q(4, heads[0]), random_kv(heads[1])
    wanted = plain(q, kv, position).float()
    torch.testing.assert_close(attend_rows(q, kv, position, 4), wanted, atol=1e-5, rtol=0)
    torch.testing.assert_close(attend_block(q, kv, position), wanted, atol=1e-5, rtol=0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("length", [1, 700, SPLIT, SPLIT + 1])
def test_more_splits_than_needed_change_no_bit(length, dtype):
    """A dead split adds exact zeros."""
    q, kv = random_q(1, 4, dtype)[0].float(), random_kv(2, dtype)
    needed = attend_row(q, kv, length)
    assert same_bits(needed, attend_row(q, kv, length, splits=3))


def test_stale_rows_are_never_read():
    """What lies beyond a row's length may be anything, not-a-number included."""
    q, kv = random_q(2, 4), random_kv(2)
    rows, block = attend_rows(q, kv, 700, 2), attend_block(q, kv, 700)
    kv[:, :, 702:] = torch.nan
    assert same_bits(rows, attend_rows(q, kv, 700, 2))
    assert same_bits(block, attend_block(q, kv, 700))
    assert same_bits(rows[:1], attend_rows(q, kv, 700, 1)[:1])


def test_a_long_block_is_cut_into_slices():
    """A block of several slices equals the plain formula in each of them."""
    q, kv = random_q(600, 4), random_kv(2)
    wanted = plain(q, kv, 100).float()
    torch.testing.assert_close(attend_block(q, kv, 100), wanted, atol=1e-5, rtol=0)
