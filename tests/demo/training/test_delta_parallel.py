"""The parallel form is the rule done token by token."""

import torch
from torch.nn import functional

from flashrt.demo.training.delta_parallel import CHUNK, delta_sequence, shifted_conv

B, T, H, D = 2, 192, 2, 8


def _step_by_step(q, k, v, beta, g):
    state, rows = torch.zeros(B, H, D, D), []
    for t in range(T):
        state = state * g[:, t, :, None, None].exp()
        u = beta[:, t, :, None] * (v[:, t] - (state * k[:, t, :, :, None]).sum(2))
        state = state + k[:, t, :, :, None] * u[:, :, None]
        rows.append((state * q[:, t, :, :, None]).sum(2))
    return torch.stack(rows, 1)


def _by_chunks(*inputs):
    chunked = [x.reshape(-1, CHUNK, *x.shape[2:]).transpose(1, 2) for x in inputs]
    return delta_sequence(*chunked, T // CHUNK).transpose(1, 2).reshape(B, T, H, D)


def test_values_and_gradients_are_those_of_the_steps():
    """Over three chunks of two sequences, for random decays and gates, to float32's rounding."""
    source = torch.Generator().manual_seed(0)
    shapes = [(B, T, H, D)] * 3 + [(B, T, H)] * 2
    raw = [torch.randn(shape, generator=source).requires_grad_() for shape in shapes]
    q, k = (functional.normalize(x, dim=-1) for x in raw[:2])
    inputs = (q, k, raw[2], raw[3].sigmoid(), -functional.softplus(raw[4] - 2))
    weights = torch.randn(B, T, H, D, generator=source)
    found = []
    for rule in (_step_by_step, _by_chunks):
        o = rule(*inputs)
        grads = torch.autograd.grad((o * weights).sum(), raw, retain_graph=True)
        found.append((o, *grads))
    for want, got in zip(*found, strict=True):
        assert (want - got).abs().max() <= 1e-5 * want.abs().max()


def test_the_convolution_sees_only_its_own_past():
    """A later row changes nothing before it, nor does a row of the sequence before; the last tap is
    the present row's."""
    x = torch.randn(20, 3, generator=torch.Generator().manual_seed(1))
    place = torch.arange(10).repeat(2)
    taps = torch.zeros(3, 4)
    taps[:, 3] = 1
    assert torch.equal(shifted_conv(x, taps, place), functional.silu(x))
    other = x.clone()
    other[7:10] += 1
    taps = torch.ones(3, 4)
    changed = (shifted_conv(x, taps, place) != shifted_conv(other, taps, place)).any(1)
    assert changed.nonzero().flatten().tolist() == [7, 8, 9]
