"""The gated delta rule over the anchored window equals the step-by-step rule."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from flashrt.engine import ops
from flashrt.engine.buffers import CHUNK, RING, RING_CHUNKS, LinearState
from flashrt.engine.delta import DeltaInputs, delta_block, delta_rows, folded
from flashrt.engine.selfcheck import same_bits

HK, HV, DK, DV = 2, 4, 16, 8
TOKENS = 330


def empty_state(fill: float = 0.0) -> LinearState:
    """Position 0; everything else holds `fill`."""
    state = LinearState(
        anchors=torch.full((2, HV, DK, DV), fill),
        raw=torch.full((RING, 1), fill),
        keys=torch.full((RING_CHUNKS, CHUNK, HK, DK), fill),
        values=torch.full((RING_CHUNKS, CHUNK, HV, DV), fill),
        decays=torch.full((RING_CHUNKS, CHUNK, HV), fill),
    )
    state.anchors[0] = 0
    return state


def random_inputs(decay: float, likeness: float = 0.0) -> DeltaInputs:
    """`decay`: the largest log decay per token; `likeness`: how alike all keys are."""
    draw = torch.Generator().manual_seed(4)

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(shape, generator=draw)

    k = (1 - likeness**2) ** 0.5 * normal(TOKENS, HK, DK) + likeness * normal(1, HK, DK)
    beta = torch.sigmoid(normal(TOKENS, HV) + (3 if likeness else 0))
    g = -decay * torch.rand(TOKENS, HV, generator=draw)
    return DeltaInputs(normal(TOKENS, HK, DK), k, normal(TOKENS, HV, DV), beta, g)


def step_by_step(rows: DeltaInputs) -> torch.Tensor:
    """Decay, predict, write, read: one token at a time, in float64."""
    S = torch.zeros(HV, DK, DV, dtype=torch.float64)
    out = []
    q = ops.l2_normalise(rows.q).double() * DK**-0.5
    k = ops.l2_normalise(rows.k).double()
    q, k = (x.repeat_interleave(HV // HK, dim=1) for x in (q, k))
    for t in range(TOKENS):
        S = S * rows.g[t].double().exp()[:, None, None]
        error = rows.v[t].double() - torch.einsum("hkv,hk->hv", S, k[t])
        S = S + torch.einsum("hk,hv->hkv", k[t], error * rows.beta[t, :, None].double())
        out.append(torch.einsum("hkv,hk->hv", S, q[t]))
    return torch.stack(out)


def slice_of(rows: DeltaInputs, start: int, end: int) -> DeltaInputs:
    return DeltaInputs(*(x[start:end] for x in (rows.q, rows.k, rows.v, rows.beta, rows.g)))


def run(rows: DeltaInputs, pieces: list[tuple[str, int]], state: LinearState) -> torch.Tensor:
    """Pieces of rows and blocks, folding as the live state does."""
    position = anchor = 0
    out = []
    for kind, count in pieces:
        end = min(TOKENS, position + count)
        if end == position:
            break
        while anchor < position // CHUNK:
            state.anchors[(anchor + 1) % 2] = folded(state, anchor)
            anchor += 1
        part = slice_of(rows, position, end)
        if kind == "rows":
            out.append(delta_rows(state, anchor, position, end - position, part))
        else:
            out.append(delta_block(state, position, part))
            anchor = (end - 1) // CHUNK
        position = end
    return torch.cat(out)


HARD = {
    "weak decay": (0.01, 0.0),
    "strong decay": (3.0, 0.0),
    "violent decay": (20.0, 0.0),
    "alike keys": (0.01, 0.95),
}
WAYS = {
    "one block": [("block", TOKENS)],
    "rows": [("rows", 1)] * TOKENS,
    "groups of rows": [("rows", 13)] * 30,
    "mixed": [("block", 70), ("rows", 3), ("block", 5), ("block", 51), ("rows", 9), ("block", 400)],
}


@pytest.mark.parametrize("hard", HARD.values(), ids=HARD.keys())
@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS.keys())
def test_every_way_equals_the_step_by_step_rule(way, hard):
    """Rows and blocks, over folds, against float64: relative errors of float32, not more."""
    rows = random_inputs(*hard)
    wanted = step_by_step(rows)
    got = run(rows, way, empty_state())
    assert (got.double() - wanted).abs().max() <= 2e-5 * wanted.abs().max()


PIECES = st.lists(
    st.tuples(st.sampled_from(("rows", "block")), st.integers(1, 150)).map(
        lambda piece: (piece[0], min(piece[1], 16) if piece[0] == "rows" else piece[1])
    ),
    min_size=1,
    max_size=12,
)


@settings(max_examples=20, deadline=None)
@given(PIECES)
def test_any_cutting_equals_the_step_by_step_rule(pieces):
    """However rows and blocks follow each other; and stale memory is never read."""
    rows = random_inputs(0.02)
    got = run(rows, pieces, empty_state())
    wanted = WANTED[: len(got)]
    assert (got.double() - wanted).abs().max() <= 2e-5 * wanted.abs().max()
    assert same_bits(got, run(rows, pieces, empty_state(torch.nan)))


WANTED = step_by_step(random_inputs(0.02))


@pytest.mark.parametrize("start", [0, 30, 63, 64, 100])
@pytest.mark.parametrize("count", [2, 16, 64])
def test_rows_together_have_the_bits_of_rows_alone(start, count):
    """Also where they cross a fold that is not stored yet."""
    rows = random_inputs(0.02)
    before = [("block", start)] if start else []
    alone = run(rows, before + [("rows", 1)] * count, empty_state())
    together = run(rows, [*before, ("rows", count)], empty_state())
    assert same_bits(alone[: start + count], together[: start + count])


@pytest.mark.parametrize("end", [65, 100, 128, 129, 192, 200, 330])
def test_a_block_leaves_two_anchors_and_their_windows(end):
    """Folding the window that a block left before its last chunk gives the anchor it stored."""
    state = empty_state(torch.nan)
    delta_block(state, 0, slice_of(random_inputs(0.02), 0, end))
    last = (end - 1) // CHUNK
    torch.testing.assert_close(folded(state, last - 1), state.anchors[last % 2], atol=1e-6, rtol=0)
