"""The gated delta rule over whole sequences, in a form that gradients go through fast.

Per chunk of 64 rows, with G the running sum of the log decays in it:

    A_rs = beta_r e^{G_r-G_s} (k_s.k_r)  (s < r),   T = (I + A)^-1
    U = T (beta v),   W = T (beta e^G k),   K = e^{G_L-G} k
    S' = (e^{G_L} - K^T W) S + K^T U
    o  = e^G q S + tril(q k^T e^{G_r-G_s}) (U - W S)

so that from chunk to chunk only one product remains to be done in order. All of it is float32.
"""

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from flashrt.demo.training.fused import fused

CHUNK = 64
BLOCK = 16


class UnitLowerInverse(torch.autograd.Function):
    """(I + A)^-1 of strictly lower triangular A [..., 64, 64]."""

    @staticmethod
    def forward(ctx: Any, A: Tensor) -> Tensor:
        """Small blocks by powers, then blocks in pairs."""
        T = _inverse(A)
        ctx.save_for_backward(T)
        return T

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Tensor:
        """-T^T dT T^T."""
        (T,) = ctx.saved_tensors
        return -(T.mT @ grads[0] @ T.mT)


def _inverse(A: Tensor) -> Tensor:
    size = A.shape[-1]
    if size > BLOCK:
        half = size // 2
        low = A[..., half:, :half]
        first, second = _inverse(torch.stack((A[..., :half, :half], A[..., half:, half:])))
        out = A.new_zeros(A.shape)
        out[..., :half, :half], out[..., half:, half:] = first, second
        out[..., half:, :half] = -(second @ low @ first)
        return out
    # A^16 = 0, so (I + A)^-1 = (I - A)(I + A^2)(I + A^4)(I + A^8).
    eye = torch.eye(size, device=A.device, dtype=A.dtype)
    out, power = eye - A, A
    for _ in range(BLOCK.bit_length() - 2):
        power = power @ power
        out = out + out @ power
    return out


class Scan(torch.autograd.Function):
    """S_{i+1} = M_i S_i + N_i from S_0 = 0. M [n, b, k, k], N [n, b, k, v] -> S_0 .. S_{n-1}."""

    @staticmethod
    def forward(ctx: Any, M: Tensor, N: Tensor) -> Tensor:
        """One product a chunk."""
        S = torch.zeros_like(N)
        for i in range(len(N) - 1):
            torch.baddbmm(N[i], M[i], S[i], out=S[i + 1])
        ctx.save_for_backward(M, S)
        return S

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor]:
        """The same the other way."""
        M, S = ctx.saved_tensors
        back = torch.zeros_like(S)  # what S_{i+1} is worth
        for i in range(len(S) - 2, -1, -1):
            torch.baddbmm(grads[0][i + 1], M[i + 1].mT, back[i + 1], out=back[i])
        return back @ S.mT, back


@fused
def _overlaps(k: Tensor, beta: Tensor, G: Tensor) -> Tensor:
    """A."""
    return (beta[..., None] * (k @ k.mT) * _decay(G)).tril(-1)


def _decay(G: Tensor) -> Tensor:
    lower = torch.ones(CHUNK, CHUNK, dtype=torch.bool, device=G.device).tril()
    gaps = G[..., :, None] - G[..., None, :]
    return torch.exp(gaps.masked_fill(~lower, -torch.inf))


@fused
def _steps(T: Tensor, k: Tensor, v: Tensor, beta: Tensor, G: Tensor) -> tuple[Tensor, ...]:
    """U, W, and M and N of S' = M S + N."""
    U = T @ (beta[..., None] * v)
    W = T @ ((beta * torch.exp(G))[..., None] * k)
    last = G[..., -1:]
    left = k * torch.exp(last - G)[..., None]
    eye = torch.eye(k.shape[-1], device=k.device)
    return U, W, torch.exp(last)[..., None] * eye - left.mT @ W, left.mT @ U


@fused
def _outputs(S: Tensor, q: Tensor, k: Tensor, G: Tensor, U: Tensor, W: Tensor) -> Tensor:
    """o."""
    inside = ((q @ k.mT) * _decay(G)) @ (U - W @ S)
    return torch.exp(G)[..., None] * (q @ S) + inside


def delta_sequence(q: Tensor, k: Tensor, v: Tensor, beta: Tensor, g: Tensor, chunks: int) -> Tensor:
    """q, k [B*n, H, 64, dk] normalised, v [.., 64, dv], beta, g [B*n, H, 64]; -> o like v.

    `chunks` is n: chunks of one sequence lie behind one another, and the state before the first is
    zero.
    """
    G = g.cumsum(-1)
    T = UnitLowerInverse.apply(_overlaps(k, beta, G))
    U, W, M, N = _steps(T, k, v, beta, G)

    def ordered(x: Tensor) -> Tensor:  # [n, B*H, dk, ..]
        return x.unflatten(0, (-1, chunks)).transpose(0, 1).flatten(1, 2)

    S = Scan.apply(ordered(M), ordered(N))
    heads = q.shape[1]
    S = S.unflatten(1, (-1, heads)).transpose(0, 1).flatten(0, 1)
    return _outputs(S, q, k, G, U, W)


def shifted_conv(x: Tensor, taps: Tensor, place: Tensor) -> Tensor:
    """silu of the depthwise causal convolution.

    x [N, C], taps [C, kernel], place [N]: which row of its sequence each is -> [N, C].
    """
    kernel = taps.shape[1]
    total = x * taps[:, -1]
    for back in range(1, kernel):
        before = functional.pad(x, (0, 0, back, 0))[: len(x)]
        total = total + before * (place >= back)[:, None] * taps[:, -1 - back]
    return functional.silu(total)
