"""The attention kernels of few rows."""

import attrs
import pytest
import torch
from torch import Tensor

from flashrt.engine import attention as reference
from flashrt.engine import ops
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

    @classmethod
    def of(cls, heads: int, kv_heads: int, dim: int, rotary: int, dtype: torch.dtype) -> "Layer":
        kv = noise(2, kv_heads, LENGTH, dim, dtype=dtype)
        scales = noise(dim, seed=1) * 0.1 + 1, noise(dim, seed=2) * 0.1 + 1
        return cls(heads, kv, scales, ops.rotary_tables(LENGTH + 16, rotary, 1e7, CUDA))

    def rows(self, count: int) -> Tensor:
        _, kv_heads, _, dim = self.kv.shape
        width = 2 * dim * (self.heads + kv_heads)
        return noise(count, width, seed=3, dtype=self.kv.dtype)

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
        kv[0, :, new] = ops.rotate(k, cos, sin).transpose(0, 1)
        kv[1, :, new] = v.unflatten(-1, (kv_heads, -1)).transpose(0, 1)
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


@pytest.mark.parametrize("border", [attention.FINE, attention.FINE_END, attention.MIDDLE_END])
@SHAPES
def test_a_rows_bits_are_its_own(heads: int, kv_heads: int, dim: int, rotary: int, border: int):
    """One by one, in groups and with any bound of keys; also across the border of a split."""
    layer = Layer.of(heads, kv_heads, dim, rotary, torch.bfloat16)
    start = border - 20
    x = layer.rows(40)
    together, kv = layer.kernel(x, start)

    layer = attrs.evolve(layer, kv=kv)
    for i in (0, 1, 17, 19, 20, 39):
        alone, _ = layer.kernel(x[i : i + 1], start + i)
        assert torch.equal(alone[0], together[i])
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
