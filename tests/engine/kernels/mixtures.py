"""Random mixtures of experts, and what they should answer."""

import attrs
import torch
from torch import Tensor

from flashrt.engine.ffn import route
from flashrt.engine.weights import MlpWeights, MoeWeights
from tests.engine.kernels.compare import CUDA, noise

from flashrt.engine.kernels import routing  # isort: skip
from flashrt.engine.kernels.norm import HalfNorm, add_half_norm  # isort: skip

EPS = 1e-6


@attrs.frozen
class Size:
    """Of a mixture."""

    hidden: int
    inner: int
    shared: int
    experts: int
    per_row: int

    def weights(self, dtype: torch.dtype = torch.bfloat16) -> MoeWeights:
        """Scaled so that rows keep their size; the router's rows are far apart."""
        h, e = self.hidden, self.experts

        def normal(*shape: int, seed: int) -> Tensor:
            return (noise(*shape, seed=seed) * shape[-1] ** -0.5).to(dtype)

        return MoeWeights(
            router=noise(e + 1, h, seed=1) * 3 * h**-0.5,
            gate_up=normal(e, 2 * self.inner, h, seed=2),
            down=normal(e, h, self.inner, seed=3),
            shared=MlpWeights(normal(2 * self.shared, h, seed=4), normal(h, self.shared, seed=5)),
            experts_per_row=self.per_row,
        )


ODD = Size(hidden=64, inner=24, shared=40, experts=7, per_row=3)
SMALL = Size(hidden=128, inner=64, shared=64, experts=8, per_row=2)
WIDE = Size(hidden=2048, inner=512, shared=512, experts=64, per_row=8)
"""The 35B-A3B shape with a quarter of its experts."""


def living(count: int) -> Tensor:
    """The place of a pass in which so many rows live."""
    return torch.tensor([0, 0, count], dtype=torch.int32, device=CUDA)


def halved(x: Tensor) -> HalfNorm:
    """x [M, h] as the products of few rows read it."""
    return add_half_norm(x.clone(), None, torch.ones(x.shape[1], device=CUDA), EPS)


def part_of(half: HalfNorm, rows: Tensor | slice) -> HalfNorm:
    """Some of its rows."""
    return HalfNorm(half.rows[rows].contiguous(), half.squares[rows].contiguous(), half.eps)


def whole(half: HalfNorm) -> Tensor:
    """Its rows, divided by their rms: float32."""
    wide = half.rows.float()
    return wide * torch.rsqrt(half.squares.sum(-1, keepdim=True) / wide.shape[1] + half.eps)


def by_definition(x: Tensor, w: MoeWeights, chosen: Tensor, shares: Tensor) -> Tensor:
    """float64, for experts chosen [M, slots] with these shares, the shared one last."""
    x, answer = x.double(), torch.zeros_like(x, dtype=torch.float64)
    experts = [*zip(w.gate_up, w.down, strict=True), (w.shared.gate_up, w.shared.down)]
    for expert, (gate_up, down) in enumerate(experts):
        here = chosen == expert
        if rows := here.any(1).nonzero()[:, 0].tolist():
            gate, up = (x[rows] @ gate_up.double().T).chunk(2, -1)
            share = torch.where(here, shares, 0).sum(1)[rows, None]
            answer[rows] += share * ((torch.nn.functional.silu(gate) * up) @ down.double().T)
    return answer


def wanted(x: Tensor | HalfNorm, weights: MoeWeights) -> Tensor:
    """By definition, of rows x as they are multiplied, for the experts that their scores choose."""
    if isinstance(x, HalfNorm):
        x, scores = whole(x), routing.score_rows(x, weights.router)
    else:
        scores = routing.score_block(x, weights.router)
    chosen, shares = route(scores[:, :-1], weights.experts_per_row)
    last = torch.full_like(chosen[:, :1], len(weights.gate_up))
    shares = torch.cat((shares, scores[:, -1:].sigmoid()), 1).double()
    return by_definition(x, weights, torch.cat((chosen, last), 1), shares)
