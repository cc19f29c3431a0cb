"""Muon for the matrices, Adam for the rest; matrices of one shape go through it together."""

from collections import defaultdict
from typing import Any

import torch
from torch import Tensor, nn

STEPS = 5
QUINTIC = (3.4445, -4.7750, 2.0315)
"""Newton-Schulz coefficients of Muon: singular values from 0 .. 1 go close to 1."""


def orthogonal(g: Tensor) -> Tensor:
    """[n, r, c] -> about the nearest matrices with orthonormal rows or columns."""
    a, b, c = QUINTIC
    x = g.bfloat16() if g.is_cuda else g.float()
    tall = x.shape[-2] > x.shape[-1]
    x = x.mT if tall else x
    x = x / (x.norm(dim=(-2, -1), keepdim=True) + 1e-7)
    for _ in range(STEPS):
        s = x @ x.mT
        x = a * x + (b * s + c * (s @ s)) @ x
    return (x.mT if tall else x).float()


class MuonAdam:
    """Updates a network's parameters in place; its state is a plain dict of tensors."""

    def __init__(
        self, net: nn.Module, *, matrix_rate: float = 0.02, rate: float = 3e-3, decay: float = 0.01
    ) -> None:
        self.matrix_rate, self.rate, self.decay = matrix_rate, rate, decay
        self.t = 0
        self.groups: dict[torch.Size, list[nn.Parameter]] = defaultdict(list)
        self.rest: list[Tensor] = []
        for name, p in net.named_parameters():
            small = "in_proj_a" in name or "in_proj_b" in name
            if p.dim() == 2 and "embed" not in name and not small:
                self.groups[p.shape].append(p)
            else:
                self.rest.append(p)
        self.momenta = [torch.zeros(len(g), *s, device=g[0].device) for s, g in self.groups.items()]
        self.firsts = [torch.zeros_like(p) for p in self.rest]
        self.seconds = [torch.zeros_like(p) for p in self.rest]

    @torch.no_grad()
    def step(self, factor: float) -> None:
        """One update from the gradients, at `factor` of the full rates."""
        self.t += 1
        for momentum, group in zip(self.momenta, self.groups.values(), strict=True):
            grad = torch.stack([p.grad for p in group if p.grad is not None]).float()
            momentum.lerp_(grad, 0.05)
            update = orthogonal(grad.lerp(momentum, 0.95))
            rows, columns = group[0].shape
            rate = self.matrix_rate * factor
            scale = rate * max(1.0, rows / columns) ** 0.5
            for p, u in zip(group, update, strict=True):
                p.mul_(1 - rate * self.decay).add_(u, alpha=-scale)
        grads = [p.grad.float() for p in self.rest if p.grad is not None]
        torch._foreach_lerp_(self.firsts, grads, 0.1)
        torch._foreach_mul_(self.seconds, 0.95)
        torch._foreach_addcmul_(self.seconds, grads, grads, 0.05)
        bias = (1 - 0.95**self.t) ** 0.5
        down = torch._foreach_sqrt(self.seconds)
        torch._foreach_div_(down, bias)
        torch._foreach_add_(down, 1e-8)
        rate = self.rate * factor / (1 - 0.9**self.t)
        torch._foreach_addcdiv_(self.rest, self.firsts, down, -rate)

    def state(self) -> dict[str, Any]:
        """What a checkpoint keeps."""
        lists = {"momenta": self.momenta, "firsts": self.firsts, "seconds": self.seconds}
        return {"t": self.t, **lists}

    def load(self, state: dict[str, Any]) -> None:
        """Go on from `state`."""
        self.t = state["t"]
        for name in ("momenta", "firsts", "seconds"):
            for mine, saved in zip(getattr(self, name), state[name], strict=True):
                mine.copy_(saved)
