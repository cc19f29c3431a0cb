"""Attention of blocks by a kernel."""

import pytest
import torch

from flashrt.engine import ops
from flashrt.engine.attention import attend_block as reference
from flashrt.engine.attention import attend_rows
from flashrt.engine.kvcache import stored
from tests.engine.kernels.compare import BITS, CUDA, distance, noise

from flashrt.engine.kernels import blockattention  # isort: skip

pytestmark = pytest.mark.gpu

SHAPES = pytest.mark.parametrize(
    ("heads", "kv_heads", "d"), [(4, 2, 64), (6, 2, 32), (24, 4, 256)], ids=str
)


@pytest.mark.parametrize("kv_dtype", [torch.bfloat16, torch.float8_e4m3fn], ids=str)
@SHAPES
@pytest.mark.parametrize(
    ("position", "count", "size"),
    [(0, 1, 32), (0, 70, 128), (63, 65, 65), (5000, 50, 64), (9000, 300, 512), (1, 1000, 1000)],
)
def test_blocks_equal_the_reference(
    heads: int, kv_heads: int, d: int, position: int, count: int, size: int, kv_dtype: torch.dtype
):
    """Over one and several splits of the keys, with dead rows behind, stale keys beyond."""
    kv = stored(noise(2, kv_heads, 10240, d, dtype=torch.bfloat16), kv_dtype)
    kv[:, :, position + count :] = torch.nan
    q = noise(size, heads, d, seed=1, dtype=torch.bfloat16)
    rows = noise(size, 2 * (heads + kv_heads) * d, seed=2, dtype=torch.bfloat16)
    at = torch.tensor([position, 0, count], dtype=torch.int32, device=CUDA)

    got = blockattention.attend_block(q, kv, at, 10240, rows)[:count]

    gate = rows[:count, : 2 * heads * d].view(count, heads, 2, d)[:, :, 1]
    wanted = reference(q[:count].float(), kv.float(), position)
    assert distance(got, ops.sigmoid_gate(wanted, gate.float())) < BITS[torch.bfloat16]


@pytest.mark.parametrize("kv_dtype", [torch.bfloat16, torch.float8_e4m3fn], ids=str)
@pytest.mark.parametrize("count", [64, 512])
def test_the_last_rows_of_the_longest_window(count: int, kv_dtype: torch.dtype):
    """Of 262,144 keys of the largest shape, in many splits and in few; 2 GB."""
    length = 1 << 18
    kv = stored(noise(2, 4, length, 256, dtype=torch.bfloat16), kv_dtype)
    q = noise(count, 24, 256, seed=1, dtype=torch.bfloat16)
    rows = noise(count, 2 * 28 * 256, seed=2, dtype=torch.bfloat16)
    at = torch.tensor([length - count, 0, count], dtype=torch.int32, device=CUDA)

    got = blockattention.attend_block(q, kv, at, length, rows)[-3:]

    gate = rows[-3:, : 2 * 24 * 256].view(3, 24, 2, 256)[:, :, 1]
    wanted = attend_rows(q[-3:], kv, length - 3, 3)
    assert distance(got, ops.sigmoid_gate(wanted, gate.float())) < BITS[torch.bfloat16]


@pytest.mark.parametrize("kv_dtype", [torch.bfloat16, torch.float8_e4m3fn], ids=str)
def test_more_keys_than_there_are_change_nothing(kv_dtype: torch.dtype):
    """A graph of a long bound has the bits of one of a short bound."""
    kv = stored(noise(2, 2, 40960, 64, dtype=torch.bfloat16), kv_dtype)
    q = noise(64, 4, 64, seed=1, dtype=torch.bfloat16)
    rows = noise(64, 2 * 6 * 64, seed=2, dtype=torch.bfloat16)
    at = torch.tensor([3000, 0, 64], dtype=torch.int32, device=CUDA)

    short, long = (blockattention.attend_block(q, kv, at, keys, rows) for keys in (4096, 40960))

    assert torch.equal(short, long)
