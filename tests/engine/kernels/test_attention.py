"""The attention kernels of few rows."""

import attrs
import pytest
import torch
from torch import Tensor

from flashrt.engine import attention as reference
from flashrt.engine import ops
from flashrt.engine.kvcache import stored
from flashrt.engine.selfcheck import same_bits
from tests.engine.kernels.compare import CUDA, distance, noise

from flashrt.engine.kernels import attention  # isort: skip

pytestmark = pytest.mark.gpu

LENGTH = 10240
EPS = 1e-6
LIMITS = {torch.float32: 1e-5, torch.bfloat16: 1e-2}
"""bfloat16: weights are rounded before they meet V."""

SHAPES = pytest.mark.parametrize(
    ("heads", "kv_heads", "dim", "rotary"),
    [(24, 4, 256, 64), (4, 2, 64, 16), (4, 2, 32, 8), (16, 2, 128, 32)],
    ids=str,
)


@attrs.frozen(eq=False)
class Layer:
    """K and V up to LENGTH, norms and rotary tables."""

    heads: int
    kv: Tensor
    scales: tuple[Tensor, Tensor]
    tables: tuple[Tensor, Tensor]
    dtype: torch.dtype
    """Of the rows."""
    keeps: bool = False
    """Whether the reference finds the new rows' K and V in the cache already."""

    @classmethod
    def of(
        cls, heads: int, kv_heads: int, dim: int, rotary: int,
        dtype: torch.dtype, kv_dtype: torch.dtype | None = None, length: int = LENGTH,
    ) -> "Layer":  # fmt: skip
        kv = stored(noise(2, kv_heads, length, dim, dtype=dtype), kv_dtype or dtype)
        scales = noise(dim, seed=1) * 0.1 + 1, noise(dim, seed=2) * 0.1 + 1
        tables = ops.rotary_tables(length + 16, rotary, 1e7, CUDA)
        return cls(heads, kv, scales, tables, dtype)

    def rows(self, count: int) -> Tensor:
        _, kv_heads, _, dim = self.kv.shape
        width = 2 * dim * (self.heads + kv_heads)
        return noise(count, width, seed=3, dtype=self.dtype)

    def kernel(self, rows: Tensor, position: int, keys: int = LENGTH) -> tuple[Tensor, Tensor]:
        """Gated outputs, and K and V with the new rows; what lies behind them is NaN."""
        kv = self.kv.clone()
        kv[:, :, position + len(rows) :] = torch.nan
        at = torch.tensor([position, 0, len(rows)], dtype=torch.int32, device=CUDA)
        q = attention.prepare(rows, kv, at, self.scales, self.tables, self.heads, EPS)
        return attention.attend_rows(q, kv, at, keys, rows), kv

    def torch(self, rows: Tensor, position: int) -> tuple[Tensor, Tensor]:
        """The same by the references."""
        _, kv_heads, _, dim = self.kv.shape
        kv, new = self.kv.clone(), slice(position, position + len(rows))
        widths = (2 * self.heads * dim, kv_heads * dim, kv_heads * dim)
        queries, k, v = rows.split(widths, -1)
        q, gate = queries.unflatten(-1, (self.heads, 2, -1)).unbind(2)
        cos, sin = (table[new] for table in self.tables)
        q = ops.rotate(ops.rms_norm(q, self.scales[0], EPS), cos, sin)
        k = ops.rms_norm(k.unflatten(-1, (kv_heads, -1)), self.scales[1], EPS)
        k, v = ops.rotate(k, cos, sin), v.unflatten(-1, (kv_heads, -1))
        if not self.keeps:
            kv[0, :, new] = stored(k, kv.dtype).transpose(0, 1)
            kv[1, :, new] = stored(v, kv.dtype).transpose(0, 1)
        return ops.sigmoid_gate(reference.attend_rows(q, kv, position, len(rows)), gate), kv


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32], ids=str)
@pytest.mark.parametrize(("position", "rows"), [(0, 1), (5, 4), (62, 5), (1022, 8), (10224, 16)])
@SHAPES
def test_rows_equal_the_reference(
    heads: int, kv_heads: int, dim: int, rotary: int,
    position: int, rows: int, dtype: torch.dtype,
):  # fmt: skip
    """Outputs, and the K and V stored; stale rows behind them are never read."""
    layer = Layer.of(heads, kv_heads, dim, rotary, dtype)
    x = layer.rows(rows)

    (got, kv), (wanted, wanted_kv) = layer.kernel(x, position), layer.torch(x, position)

    end = position + rows
    assert distance(got, wanted) < LIMITS[dtype]
    assert distance(kv[:, :, :end], wanted_kv[:, :, :end]) < LIMITS[dtype]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32], ids=str)
@pytest.mark.parametrize("kv_dtype", [torch.float8_e4m3fn, torch.bfloat16], ids=str)
@pytest.mark.parametrize(("position", "rows"), [(0, 1), (5, 4), (62, 5), (1022, 8), (10224, 16)])
@SHAPES
def test_rows_over_a_cache_of_another_dtype(
    heads: int, kv_heads: int, dim: int, rotary: int,
    position: int, rows: int, kv_dtype: torch.dtype, dtype: torch.dtype,
):  # fmt: skip
    """What is stored is what would be, rounded, bit for bit; outputs are those of the stored
    numbers; stale rows behind them, not-a-number by any reading, are never read."""
    narrow = Layer.of(heads, kv_heads, dim, rotary, dtype, kv_dtype)
    wide = attrs.evolve(narrow, kv=narrow.kv.to(dtype))
    x = narrow.rows(rows)

    got, kv = narrow.kernel(x, position)
    _, wide_kv = wide.kernel(x, position)

    end = position + rows
    assert same_bits(kv[:, :, :end], stored(wide_kv[:, :, :end], kv_dtype))
    # By the reference over the very numbers that the kernel has stored.
    wanted, _ = attrs.evolve(wide, kv=kv.to(dtype), keeps=True).torch(x, position)
    assert distance(got, wanted) < LIMITS[dtype]


@pytest.mark.parametrize("kv_dtype", [torch.bfloat16, torch.float8_e4m3fn], ids=str)
@pytest.mark.parametrize("border", [attention.FINE, attention.FINE_END, attention.MIDDLE_END])
@SHAPES
def test_a_rows_bits_are_its_own(
    heads: int, kv_heads: int, dim: int, rotary: int, border: int, kv_dtype: torch.dtype
):
    """One by one, in groups and with any bound of keys; also across the border of a split."""
    layer = Layer.of(heads, kv_heads, dim, rotary, torch.bfloat16, kv_dtype)
    start = border - 20
    x = layer.rows(40)
    together, kv = layer.kernel(x, start)

    layer = attrs.evolve(layer, kv=kv)
    for i in (0, 1, 17, 19, 20, 39):
        alone, stored_alone = layer.kernel(x[i : i + 1], start + i)
        assert torch.equal(alone[0], together[i])
        assert same_bits(stored_alone[:, :, start + i], kv[:, :, start + i])
    few, _ = layer.kernel(x[7:15], start + 7, keys=start + 15)
    assert torch.equal(few, together[7:15])


@pytest.mark.parametrize("keys", [1, 64, 65, 1024, 1025, 1280, 1281, 8192, 8193, 8704, 8705])
def test_splits_cover_all_keys_and_no_more(keys: int):
    """Counted from the borders, split by split."""
    borders = [
        *range(0, attention.FINE_END, attention.FINE),
        *range(attention.FINE_END, attention.MIDDLE_END, attention.MIDDLE),
        *range(attention.MIDDLE_END, 20000, attention.COARSE),
    ]

    assert attention.splits_for(keys) == sum(border < keys for border in borders)


@pytest.mark.parametrize("kv_dtype", [torch.bfloat16, torch.float8_e4m3fn], ids=str)
def test_the_last_rows_of_the_longest_window(kv_dtype: torch.dtype):
    """64 rows at the end of 262,144 of the largest shape: stored there and nowhere else, and read
    with all before them; 2 GB."""
    length = 1 << 18
    layer = Layer.of(24, 4, 256, 64, torch.bfloat16, kv_dtype, length)
    start, x = length - 64, layer.rows(64)

    got, kv = layer.kernel(x, start, length)

    assert same_bits(kv[:, :, :start], layer.kv[:, :, :start])
    assert not same_bits(kv[:, :, start:], layer.kv[:, :, start:])
    last = slice(60, 64)
    seen = attrs.evolve(layer, kv=kv, keeps=True)
    wanted, _ = seen.torch(x[last], start + 60)
    assert distance(got[last], wanted) < LIMITS[torch.bfloat16]
    alone, _ = seen.kernel(x[63:], length - 1, length)
    assert torch.equal(alone[0], got[63])


def test_rows_beyond_the_end_are_dropped():
    """Dead rows of a group at the end of the window write nowhere."""
    layer = Layer.of(4, 2, 64, 16, torch.bfloat16)
    x = layer.rows(8)
    guard = torch.zeros(2 * 2 * LENGTH * 64 + 4096, dtype=torch.bfloat16, device=CUDA)
    kv = guard[: 2 * 2 * LENGTH * 64].view(2, 2, LENGTH, 64)
    at = torch.tensor([LENGTH - 3, 0, 8], dtype=torch.int32, device=CUDA)

    attention.prepare(x, kv, at, layer.scales, layer.tables, 4, EPS)

    assert kv[:, :, LENGTH - 3 :].any(-1).all()
    assert not kv[:, :, : LENGTH - 3].any()
    assert not guard[2 * 2 * LENGTH * 64 :].any()
