"""The pointwise operations of the forward pass, as torch references that run on any device.

All of them compute in float32 and round to the engine's dtype once, at the end. Rows are
independent of each other in every one of them but `causal_conv`.
"""

import torch
from torch import Tensor
from torch.nn import functional

L2_EPS = 1e-6


def rms_norm(x: Tensor, scale: Tensor, eps: float) -> Tensor:
    """x / rms(x) * scale over the last dim; `scale` is float32, 1 + the stored weight."""
    wide = x.float()
    inverse = torch.rsqrt(wide.square().mean(-1, keepdim=True) + eps)
    return (wide * inverse * scale).to(x.dtype)


def gated_norm(o: Tensor, z: Tensor, weight: Tensor, eps: float) -> Tensor:
    """The linear layers' output norm: o / rms(o) * weight * silu(z). o [T, Hv, dv] float32."""
    inverse = torch.rsqrt(o.square().mean(-1, keepdim=True) + eps)
    return (o * inverse * weight * functional.silu(z.float())).to(z.dtype)


def silu_mul(gate_up: Tensor) -> Tensor:
    """silu(gate) * up of the two halves of the last dim."""
    gate, up = gate_up.float().chunk(2, dim=-1)
    return (functional.silu(gate) * up).to(gate_up.dtype)


def sigmoid_gate(o: Tensor, gate: Tensor) -> Tensor:
    """o * sigmoid(gate), in the dtype of `gate`. o [T, H, d] of any dtype."""
    return (o.float() * torch.sigmoid(gate.float())).to(gate.dtype)


def l2_normalise(x: Tensor) -> Tensor:
    """x / |x| over the last dim, float32."""
    wide = x.float()
    return wide * torch.rsqrt(wide.square().sum(-1, keepdim=True) + L2_EPS)


def causal_conv(rows: Tensor, taps: Tensor) -> Tensor:
    """silu of a depthwise convolution over time. rows [kernel-1 + T, C] -> [T, C].

    taps [kernel, C] float32; the last one meets the newest row. Summed oldest first.
    """
    wide = rows.float()
    count = len(rows) - len(taps) + 1
    total = wide[:count] * taps[0]
    for j in range(1, len(taps)):
        total = torch.addcmul(total, wide[j : j + count], taps[j])
    return functional.silu(total).to(rows.dtype)


def log_decay(a: Tensor, dt_bias: Tensor, rate: Tensor) -> Tensor:
    """g = -rate * softplus(a + dt_bias) <= 0, float32; `rate` = exp(A_log)."""
    return -rate * functional.softplus(a.float() + dt_bias)


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotary positions on the first dims of each head: pairs (i, i + r), the rest untouched.

    x [T, H, d]; cos, sin [T, 1, r] float32.
    """
    r = cos.shape[-1]
    wide = x.float()
    first, second, rest = wide[..., :r], wide[..., r : 2 * r], wide[..., 2 * r :]
    turned = (first * cos - second * sin, second * cos + first * sin, rest)
    return torch.cat(turned, dim=-1).to(x.dtype)


def rotary_tables(
    rows: int, dims: int, theta: float, device: torch.device
) -> tuple[Tensor, Tensor]:
    """cos and sin [rows, 1, dims/2] float32 of position * theta^(-2i/dims)."""
    exponents = torch.arange(0, dims, 2, dtype=torch.float32) / dims
    angles = torch.outer(torch.arange(rows, dtype=torch.float32), theta**-exponents)
    return angles.cos()[:, None].to(device), angles.sin()[:, None].to(device)
