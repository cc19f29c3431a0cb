"""The feed-forward half of a layer, dense or a mixture of experts, for either kind of pass.

T rows of h; E experts, of which k serve a row. Sums over experts are float32, from the lowest
expert of a row to its highest, the shared one last, and are rounded to the engine's dtype once.
"""

from collections.abc import Iterator

import torch
from torch import Tensor

from flashrt.engine import ops
from flashrt.engine.matrix import Matrix, sole_part
from flashrt.engine.passes import Pass
from flashrt.engine.weights import FfnWeights, MlpWeights, MoeWeights


def feed_forward(x: Tensor, weights: FfnWeights, go: Pass) -> Tensor:
    """x [T, h] -> [T, h]."""
    if isinstance(weights, MlpWeights):
        return _mlp(x, weights.gate_up, weights.down, go)
    return _mixture(x, weights, go)


def matrices(weights: FfnWeights) -> Iterator[tuple[str, Matrix]]:
    """What rows are multiplied with, by name; of experts in one form, the first."""
    if isinstance(weights, MlpWeights):
        yield "gate and up projection", weights.gate_up
        yield "down projection", weights.down
        return
    yield "router", weights.router
    for name, experts in (("gate and up", weights.gate_up), ("down", weights.down)):
        for expert in range(1 if sole_part(experts) is not None else len(experts)):
            yield f"experts' {name} projection", experts[expert]
    yield from matrices(weights.shared)


def route(logits: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """The k likeliest experts of each row, and their float32 shares, which add up to 1.

    logits [T, E] float32 -> two of [T, k], the likeliest first. Of equals, the lowest index goes
    first: which of them a library's top-k takes would depend on the device.
    """
    ordered = logits.softmax(-1).sort(dim=-1, descending=True, stable=True)
    best = ordered.values[:, :k]
    return ordered.indices[:, :k], best / best.sum(-1, keepdim=True)


def _mlp(x: Tensor, gate_up: Matrix, down: Matrix, go: Pass) -> Tensor:
    return go.linear(ops.silu_mul(go.linear(x, gate_up)), down)


def _mixture(x: Tensor, weights: MoeWeights, go: Pass) -> Tensor:
    scores = go.linear(x.float(), weights.router)  # [T, E + 1]
    chosen, shares = route(scores[:, :-1], weights.experts_per_row)  # [T, k] each
    shares = shares.to(x.dtype).float().flatten()
    total = x.new_zeros(x.shape, dtype=torch.float32)
    # What a dead row would choose is not read: it would only cost the weights of more experts.
    for expert, places in _by_expert(chosen[: go.count], len(weights.gate_up)):
        rows = places // weights.experts_per_row
        # Padded like any group of few rows, so that a row's bits stay its own among any others.
        y = _mlp(go.pad(x[rows]), weights.gate_up[expert], weights.down[expert], go)
        total[rows] += y[: len(rows)].float() * shares[places, None]
    shared = _mlp(x, weights.shared.gate_up, weights.shared.down, go).float()
    return (total + shared * scores[:, -1:].sigmoid()).to(x.dtype)


def _by_expert(chosen: Tensor, experts: int) -> Iterator[tuple[int, Tensor]]:
    """Each expert in use, in order, and where in the flat chosen [T, k] it stands, in row order."""
    flat = chosen.flatten()
    counts = flat.bincount(minlength=experts).tolist()
    parts = flat.argsort(stable=True).split(counts)
    return ((expert, places) for expert, places in enumerate(parts) if len(places))
