"""The optimizer goes downhill and goes on from its state."""

import torch
from torch import nn

from flashrt.demo.training.optim import MuonAdam, orthogonal


def _trained(steps, state=None, weights=None):
    net = nn.Sequential(nn.Linear(8, 16, bias=False), nn.Tanh(), nn.Linear(16, 8))
    source = torch.Generator().manual_seed(0)
    for p in net.parameters():
        with torch.no_grad():
            p.copy_(torch.randn(p.shape, generator=source) * 0.3)
    if weights:
        net.load_state_dict(weights)
    optimizer = MuonAdam(net)
    if state:
        optimizer.load(state)
    x = torch.randn(64, 8, generator=source)
    losses = []
    for _ in range(steps):
        loss = (net(x) - x.flip(1)).square().mean()
        loss.backward()
        optimizer.step(1.0)
        net.zero_grad()
        losses.append(loss.item())
    return losses, optimizer.state(), {n: p.clone() for n, p in net.state_dict().items()}


def test_the_loss_falls():
    """On a small problem, to a third in sixty steps."""
    losses, _, _ = _trained(60)
    assert losses[-1] < losses[0] / 3


def test_going_on_from_a_state_equals_going_on():
    """The same bits."""
    whole, _, _ = _trained(10)
    first, state, weights = _trained(6)
    assert first + _trained(4, state, weights)[0] == whole


def test_updates_of_matrices_are_nearly_orthogonal():
    """All singular values come close to 1, in both orientations."""
    g = torch.randn(3, 24, 8, generator=torch.Generator().manual_seed(0))
    for x in (g, g.mT):
        values = torch.linalg.svdvals(orthogonal(x))
        assert values.min() > 0.5
        assert values.max() < 1.4
