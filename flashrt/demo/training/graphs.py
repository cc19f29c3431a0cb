"""Trunk and drafts as recorded CUDA graphs: thousands of small kernels start as one.

One pair of graphs, forward and backward, for each shape of rows and depth of drafts. All of them
share one pool of memory: only one pair is under way at a time.
"""

from typing import Any

import torch
from torch import Tensor, nn

from flashrt.demo.training.net import Net


class _Trunk(nn.Module):
    def __init__(self, net: Net) -> None:
        super().__init__()
        self.model, self.places = net.model, net.places

    def forward(self, ids: Tensor) -> Tensor:
        batch, length = ids.shape
        hidden: Tensor = self.model(ids, self.places(batch, length, ids.device))
        return hidden


class _Drafts(nn.Module):
    def __init__(self, net: Net, depth: int) -> None:
        super().__init__()
        self.embed, self.mtp = net.model.embed_tokens, net.mtp
        self.drafts, self.depth = net.drafts, depth

    def forward(self, hidden: Tensor, ids: Tensor) -> tuple[Tensor, ...]:
        return tuple(self.drafts(hidden, ids, self.depth))


class Body:
    """What makes hidden rows and drafts of ids; on a CPU as written, without any recording."""

    def __init__(self, net: Net) -> None:
        self.net = net
        self._graphs: dict[tuple[int, ...], Any] = {}
        self._pool: Any = None

    def __call__(self, ids: Tensor, depth: int) -> tuple[Tensor, tuple[Tensor, ...]]:
        """ids [B, T] -> hidden [B, T, h] and, for d = 1 .. depth, drafts [B, T, h] (see Net)."""
        if not ids.is_cuda:
            hidden = self.net(ids)
            return hidden, tuple(self.net.drafts(hidden, ids, depth))
        shape = (*ids.shape, depth)
        if shape not in self._graphs:
            self._graphs[shape] = self._record(ids, depth)
        trunk, drafts = self._graphs[shape]
        hidden = trunk(ids)
        return hidden, drafts(hidden, ids)

    def _record(self, ids: Tensor, depth: int) -> Any:
        if self._pool is None:
            self._pool = torch.cuda.graph_pool_handle()
        parts = (_Trunk(self.net), _Drafts(self.net, depth))
        hidden = torch.zeros(*ids.shape, self.net.c.hidden_size, device=ids.device)
        samples = ((ids.clone(),), (hidden.requires_grad_(), ids.clone()))
        with torch.autocast("cuda", torch.bfloat16, cache_enabled=False):
            return torch.cuda.make_graphed_callables(parts, samples, pool=self._pool)
