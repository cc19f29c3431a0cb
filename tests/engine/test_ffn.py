"""A mixture of experts computes what the reference computes, and a row's bits are its own."""

from collections.abc import Callable

import attrs
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional

from flashrt.engine.ffn import feed_forward, matrices, route
from flashrt.engine.hybrid import HybridEngine
from flashrt.engine.passes import BlockPass, RowsPass
from flashrt.engine.protocol import SamplingParams
from flashrt.engine.selfcheck import same_bits
from flashrt.engine.weights import MlpWeights, MoeWeights
from tests.engine.models import MIXTURE, Shape, config_of, ids, reference, weights_of

DTYPES = (torch.float32, torch.bfloat16)
MIXTURES = {
    "three of eight": MIXTURE,
    "one of five": Shape(experts=5, experts_per_row=1, layers=2, interval=2),
    "all of three": Shape(experts=3, experts_per_row=3, layers=2, interval=2, tied=True),
}
PROMPT, ANSWER = 300, 64
H, INNER, SHARED, EXPERTS, PER_ROW = 32, 24, 40, 7, 3


def mixture(dtype: torch.dtype = torch.float32) -> MoeWeights:
    """Random weights."""
    draw = torch.Generator().manual_seed(1)

    def normal(*shape: int, of: torch.dtype = dtype) -> Tensor:
        return (torch.randn(shape, generator=draw) * 0.3).to(of)

    return MoeWeights(
        router=normal(EXPERTS + 1, H, of=torch.float32),
        gate_up=normal(EXPERTS, 2 * INNER, H),
        down=normal(EXPERTS, H, INNER),
        shared=MlpWeights(normal(2 * SHARED, H), normal(H, SHARED)),
        experts_per_row=PER_ROW,
    )


def rows_of(count: int, dtype: torch.dtype = torch.float32) -> Tensor:
    """Random rows [count, H]."""
    return torch.randn(count, H, generator=torch.Generator().manual_seed(2)).to(dtype)


def as_rows(x: Tensor, weights: MoeWeights) -> Tensor:
    """As the model sends few rows through: in groups, each padded."""
    done = []
    for part in x.split(16):
        go = RowsPass(position=0, count=len(part), anchor=0)
        done.append(feed_forward(go.pad(part), weights, go)[: len(part)])
    return torch.cat(done)


def as_block(x: Tensor, weights: MoeWeights) -> Tensor:
    """All together."""
    return feed_forward(x, weights, BlockPass(position=0, count=len(x)))


def by_definition(x: Tensor, w: MoeWeights) -> Tensor:
    """Every expert for every row, in float64; those that were not chosen count 0."""

    def mlp(rows: Tensor, gate_up: Tensor, down: Tensor) -> Tensor:
        gate, up = functional.linear(rows, gate_up.double()).chunk(2, -1)
        return functional.linear(functional.silu(gate) * up, down.double())

    x = x.double()
    likely = functional.linear(x, w.router[:-1].double()).softmax(-1)
    least = likely.sort(-1, descending=True).values[:, PER_ROW - 1 : PER_ROW]
    share = torch.where(likely >= least, likely, 0)
    share = share / share.sum(-1, keepdim=True)
    y = sum(share[:, e, None] * mlp(x, w.gate_up[e], w.down[e]) for e in range(EXPERTS))
    gate = functional.linear(x, w.router[-1:].double()).sigmoid()
    return y + gate * mlp(x, w.shared.gate_up, w.shared.down)


@pytest.mark.parametrize("shape", MIXTURES.values(), ids=MIXTURES.keys())
def test_a_loaded_mixture_computes_what_the_reference_computes(tmp_path, shape):
    """In one call and cut, then 64 greedy ids: logits within 2e-4, the same ids."""
    model = reference(shape)
    model.save_pretrained(tmp_path)
    engine = HybridEngine.load(tmp_path, max_seq=512, progress=False)
    prompt = ids(PROMPT, shape.vocab)
    for cuts in ((), (64, 128, 256), (37, 38, 64, 130, 131, 200)):
        engine.reset()
        seen = [(at, engine._live.logits()) for at in engine.prefill(prompt, cuts)]
        decoded: list[int] = []
        for chunk in engine.decode(SamplingParams()):
            decoded += chunk.tokens
            seen.append((engine.position, engine._live.logits()))
            if len(decoded) >= ANSWER:
                break
        with torch.no_grad():
            wanted = model(torch.tensor([[*prompt, *decoded]])).logits[0]
        for at, logits in seen:
            torch.testing.assert_close(logits, wanted[at - 1], atol=2e-4, rtol=0)
        assert decoded == wanted[PROMPT - 1 : -1].argmax(-1).tolist()


def test_a_mixture_in_bfloat16_is_as_close_to_the_truth_as_the_reference_is():
    """Against a float32 run of the same rounded weights, our error is at most the reference's."""
    model = reference(MIXTURE, seed=3).bfloat16()
    for name, tensor in model.named_parameters():
        if name.endswith(("A_log", "dt_bias")):
            tensor.data = tensor.data.float()
    weights = weights_of(model, torch.bfloat16)
    engine = HybridEngine(config_of(model), weights, max_seq=512, model_name="random")
    prompt = ids(PROMPT)
    ours = {at: engine._live.logits() for at in engine.prefill(prompt, range(8, PROMPT, 8))}
    with torch.no_grad():
        theirs = model(torch.tensor([prompt])).logits[0].float()
        truth = model.float()(torch.tensor([prompt])).logits[0]
    at = [position - 1 for position in ours]
    our_error = (torch.stack(list(ours.values())) - truth[at]).square().mean().sqrt()
    their_error = (theirs[at] - truth[at]).square().mean().sqrt()
    assert 0 < our_error <= 1.2 * their_error


@pytest.mark.parametrize("go", [as_rows, as_block])
def test_both_ways_compute_the_definition(go: Callable[[Tensor, MoeWeights], Tensor]):
    """Every expert for every row, weighted with zeros where it was not chosen, is the same sum."""
    x, weights = rows_of(50), mixture()
    got = go(x, weights).double()
    torch.testing.assert_close(got, by_definition(x, weights), atol=1e-5, rtol=0)


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_row_of_a_mixture_has_the_same_bits_among_any_number_of_rows(dtype):
    """For 1, 2, 3, 5, 8, 16 and 64 rows, at every index, whatever experts the others choose."""
    x, weights = rows_of(64, dtype), mixture(dtype)
    alone = torch.cat([as_rows(row[None], weights) for row in x])
    assert len({str(row) for row in route(x.float() @ weights.router[:-1].T, PER_ROW)[0]}) > 9
    for count in (1, 2, 3, 5, 8, 16, 64):
        for start in range(0, 64 - count + 1, 1 if count < 16 else 7):
            rows = as_rows(x[start : start + count], weights)
            assert same_bits(rows, alone[start : start + count])


def test_dead_rows_ask_for_no_expert():
    """A decoded row reads the weights of its own experts, not of those that padding would take."""
    weights = mixture()
    x = rows_of(1)
    chosen = route(x @ weights.router[:-1].T, PER_ROW)[0][0].tolist()
    others = [e for e in range(EXPERTS) if e not in chosen]
    gate_up = weights.gate_up.clone()
    gate_up[others] = torch.nan
    go = RowsPass(position=0, count=1, anchor=0)
    padded = go.pad(x)
    padded[1:] = -x  # dead rows need not be zeros
    got = feed_forward(padded, attrs.evolve(weights, gate_up=gate_up), go)
    assert same_bits(got[:1], as_rows(x, weights))
    assert got.isfinite().all()


@given(st.lists(st.lists(st.integers(0, 3), min_size=6, max_size=6), min_size=1, max_size=20))
def test_equal_experts_are_chosen_from_the_lowest_index_up(scores):
    """The k best by score, then by index; their shares add up to 1."""
    chosen, shares = route(torch.tensor(scores, dtype=torch.float32), 4)
    for row, got, share in zip(scores, chosen.tolist(), shares, strict=True):
        assert got == sorted(range(6), key=lambda e: (-row[e], e))[:4]
        wanted = torch.tensor([row[e] for e in got], dtype=torch.float32).softmax(-1)
        torch.testing.assert_close(share, wanted, atol=1e-6, rtol=0)


def test_every_matrix_of_a_mixture_is_checked_at_start():
    """One of each shape and dtype that rows are multiplied with."""
    weights = mixture()
    assert [tuple(matrix.shape) for _, matrix in matrices(weights)] == [
        (EXPERTS + 1, H),
        (2 * INNER, H),
        (H, INNER),
        (2 * SHARED, H),
        (H, SHARED),
    ]
