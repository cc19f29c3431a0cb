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

CHUNK = 64
BLOCK = 16


class UnitLowerInverse(torch.autograd.Function):
    """(I + A)^-1 of strictly lower triangular A [..., 64, 64]."""

    @staticmethod
    def forward(ctx: Any, A: Tensor) -> Tensor:
        """Rows of small blocks in order, then blocks in pairs."""
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
    out = torch.eye(size, device=A.device, dtype=A.dtype).expand(A.shape).clone()
    for r in range(1, size):
        out[..., r, :r] = -(A[..., r, None, :r] @ out[..., :r, :r])[..., 0, :]
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


def delta_sequence(q: Tensor, k: Tensor, v: Tensor, beta: Tensor, g: Tensor) -> Tensor:
    """q, k [B, T, Hv, dk] normalised, v [B, T, Hv, dv], beta, g [B, T, Hv]; -> o like v.

    T is a multiple of 64; the state before the first row is zero.
    """
    batch, rows, heads, dv = v.shape
    n = rows // CHUNK

    def chunked(x: Tensor) -> Tensor:  # [n, B*H, 64, ...]
        x = x.float().unflatten(1, (n, CHUNK)).transpose(2, 3)  # [B, n, H, 64, ...]
        return x.transpose(0, 1).flatten(1, 2)

    q, k, v, beta = chunked(q), chunked(k), chunked(v), chunked(beta)[..., None]
    G = chunked(g).cumsum(-1)
    lower = torch.ones(CHUNK, CHUNK, dtype=torch.bool, device=v.device).tril()
    gaps = G[..., :, None] - G[..., None, :]
    decay = torch.exp(gaps.masked_fill(~lower, -torch.inf))
    T = UnitLowerInverse.apply((beta * (k @ k.mT) * decay).tril(-1))
    grown = torch.exp(G)[..., None]
    U = T @ (beta * v)
    W = T @ (beta * grown * k)
    last = G[..., -1:]
    left = k * torch.exp(last - G)[..., None]
    eye = torch.eye(k.shape[-1], device=v.device)
    M = torch.exp(last)[..., None] * eye - left.mT @ W
    S = Scan.apply(M, left.mT @ U)
    o = grown * (q @ S) + ((q @ k.mT) * decay) @ (U - W @ S)
    o = o.unflatten(1, (batch, heads)).transpose(0, 1)  # [B, n, H, 64, dv]
    return o.transpose(2, 3).reshape(batch, rows, heads, dv)


def shifted_conv(x: Tensor, taps: Tensor) -> Tensor:
    """silu of the depthwise causal convolution. x [B, T, C], taps [C, kernel] -> [B, T, C]."""
    kernel = taps.shape[1]
    padded = functional.pad(x, (0, 0, kernel - 1, 0))
    total = padded[:, : x.shape[1]] * taps[:, 0]
    for j in range(1, kernel):
        total = total + padded[:, j : j + x.shape[1]] * taps[:, j]
    return functional.silu(total)
