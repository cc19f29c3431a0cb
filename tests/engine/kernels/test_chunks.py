"""The gated delta rule of a block by kernels."""

from collections.abc import Sequence

import pytest
import torch
from torch import Tensor

from flashrt.engine import delta as reference
from flashrt.engine import ops
from flashrt.engine.buffers import CHUNK, RING, LinearState
from flashrt.engine.passes import ring_index, store_in_ring
from tests.engine.kernels.compare import BITS, CUDA, distance, noise
from tests.engine.kernels.test_delta import KERNEL, Layer

from flashrt.engine.kernels import chunks  # isort: skip

pytestmark = pytest.mark.gpu

PLANS = [[40], [64], [65], [30, 100], [20, 20, 60, 200], [128, 1, 63, 3], [700, 1, 5]]


def settle(state: LinearState, position: int) -> None:
    """Fold the chunk that ends at `position`, as the live state does before it goes on."""
    if position and position % CHUNK == 0:
        chunk = position // CHUNK
        state.anchors[chunk % 2] = reference.folded(state, chunk - 1)


def by_kernel(layer: Layer, state: LinearState, rows: Tensor, sizes: Sequence[int]) -> Tensor:
    """All rows in blocks of these sizes, each with dead rows behind."""
    taps, outs, position = chunks.Taps(layer.taps, layer.dt_bias, layer.rate), [], 0
    for part in rows.split(list(sizes)):
        settle(state, position)
        at = torch.tensor([position, position // CHUNK, len(part)], dtype=torch.int32, device=CUDA)
        padded = torch.cat((part, noise(7, rows.shape[1], seed=9, dtype=rows.dtype)))
        outs.append(chunks.delta_block(state, at, padded, taps)[: len(part)])
        position += len(part)
    return torch.cat(outs)


def by_torch(layer: Layer, state: LinearState, rows: Tensor, sizes: Sequence[int]) -> Tensor:
    """The same by the reference."""
    heads, outs, position = layer.hv, [], 0
    for part in rows.split(list(sizes)):
        settle(state, position)
        widths = (layer.width, heads * layer.dim, heads, heads)
        raw, _, b, a = part.split(widths, -1)
        before = state.raw[ring_index(position - KERNEL + 1, position, CUDA)]
        mixed = ops.causal_conv(torch.cat((before, raw)), layer.taps)
        keys = layer.hk * layer.dim
        q, k, v = mixed.split((keys, keys, heads * layer.dim), -1)
        inputs = reference.DeltaInputs(
            q=q.unflatten(-1, (layer.hk, -1)),
            k=k.unflatten(-1, (layer.hk, -1)),
            v=v.unflatten(-1, (heads, -1)),
            beta=b.float().sigmoid(),
            g=ops.log_decay(a, layer.dt_bias, layer.rate),
        )
        outs.append(reference.delta_block(state, position, inputs))
        store_in_ring(state.raw, position, raw)
        position += len(part)
    return torch.cat(outs)


@pytest.mark.parametrize("sizes", PLANS, ids=str)
@pytest.mark.parametrize(("hk", "hv", "dim"), [(2, 4, 32), (2, 4, 16), (16, 48, 128)], ids=str)
def test_blocks_leave_what_the_reference_leaves(hk: int, hv: int, dim: int, sizes: list[int]):
    """Outputs, and all that a later row, block or capsule reads; over any cutting into blocks."""
    layer = Layer.of(hk, hv, dim, torch.bfloat16)
    rows = layer.rows(sum(sizes))
    ours, theirs = layer.state(), layer.state()

    got, wanted = by_kernel(layer, ours, rows, sizes), by_torch(layer, theirs, rows, sizes)

    # The convolution's rounding may fall the other way; everything else is float32.
    limit, last = BITS[torch.bfloat16], (len(rows) - 1) // CHUNK
    assert distance(got, wanted) < limit
    for chunk in range(max(0, last - 1), last + 1):
        assert distance(ours.anchors[chunk % 2], theirs.anchors[chunk % 2]) < limit
    window = ring_index(max(0, (last - 1) * CHUNK), len(rows), CUDA)
    for name in ("keys", "values", "decays"):
        one, other = (getattr(state, name).flatten(0, 1)[window] for state in (ours, theirs))
        assert distance(one, other) < (1e-5 if name == "decays" else limit), name
    kept = ring_index(max(0, len(rows) - RING), len(rows), CUDA)
    assert torch.equal(ours.raw[kept], rows[:, : layer.width][-len(kept) :])


def test_rows_that_repeat_stay_exact():
    """Equal keys with full weight, which make the triangle's inverse as hard as it gets."""
    layer = Layer.of(2, 4, 32, torch.bfloat16)
    rows = layer.rows(1).repeat(3 * CHUNK, 1)
    rows[:, -2 * layer.hv : -layer.hv] = 8  # beta
    rows[:, -layer.hv :] = -8  # hardly any decay
    ours, theirs = layer.state(), layer.state()

    got, wanted = (f(layer, s, rows, [150, 42]) for f, s in ((by_kernel, ours), (by_torch, theirs)))

    assert distance(got, wanted) < BITS[torch.bfloat16]


def test_a_block_is_the_same_with_any_dead_rows_behind():
    """Captured passes are larger than what they process."""
    layer = Layer.of(16, 48, 128, torch.bfloat16)
    rows, taps = layer.rows(256), chunks.Taps(layer.taps, layer.dt_bias, layer.rate)
    at = torch.tensor([0, 0, 100], dtype=torch.int32, device=CUDA)
    states = [layer.state() for _ in range(2)]

    short, long = (
        chunks.delta_block(state, at, rows[:size], taps)[:100]
        for state, size in zip(states, (100, 256), strict=True)
    )

    assert torch.equal(short, long)
    for name in ("raw", "keys", "values", "decays", "anchors"):
        one, other = (getattr(state, name).nan_to_num(7) for state in states)
        assert torch.equal(one, other), name
