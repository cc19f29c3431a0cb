"""The gated delta rule over an anchored window.

S moves only when a whole chunk of 64 tokens, aligned to absolute position, is complete. Since the
anchor S₀ the window keeps per row its key k, its corrected value u and the sum G of its chunk's log
decays up to it:

    u_r = β_r (v_r - e^{G_r} S₀ᵀk_r - Σ_{s<r} e^{G_r-G_s} (k_s·k_r) u_s)
    o_r = e^{G_r} S₀ᵀq_r + Σ_{s≤r} e^{G_r-G_s} (k_s·q_r) u_s
    fold:  S ← e^{G_L} S₀ + Σ_s e^{G_L-G_s} k_s ⊗ u_s

Everything is float32. Exponents are formed from differences, so none is above 0; what lies outside
the window is taken out by selecting, never by multiplying, since a stale row may hold anything.
Value head i reads key head i // (Hv / Hk).
"""

import attrs
import torch
from torch import Tensor

from flashrt.engine import ops
from flashrt.engine.buffers import CHUNK, RING_CHUNKS, LinearState

CHUNKS_AT_ONCE = 32
"""Chunks of a block that are prepared together; bounds the memory of a long block."""


@attrs.frozen(eq=False)
class DeltaInputs:
    """What one layer's rows bring. The keys are stored as they are and normalised when used."""

    q: Tensor
    """[T, Hk, dk], engine dtype."""
    k: Tensor
    """[T, Hk, dk], engine dtype."""
    v: Tensor
    """[T, Hv, dv], engine dtype."""
    beta: Tensor
    """[T, Hv] float32."""
    g: Tensor
    """[T, Hv] float32: log decays, none above 0."""


def fold(S: Tensor, k: Tensor, u: Tensor, G: Tensor) -> Tensor:
    """S [Hv, dk, dv] after a chunk of normalised k [Hk, 64, dk], u [Hv, 64, dv], G [Hv, 64]."""
    left = torch.exp(G[:, -1:] - G)  # [Hv, 64]
    k = k.repeat_interleave(len(S) // len(k), dim=0) * left[..., None]
    return torch.baddbmm(S * torch.exp(G[:, -1])[:, None, None], k.transpose(1, 2), u)


def folded(state: LinearState, chunk: int) -> Tensor:
    """The anchor after `chunk`, from the anchor before it and its complete window."""
    slot = chunk % RING_CHUNKS
    k = ops.l2_normalise(state.keys[slot]).transpose(0, 1)
    u, G = state.values[slot].transpose(0, 1), state.decays[slot].transpose(0, 1)
    return fold(state.anchors[chunk % 2], k, u, G)


# -- few rows --------------------------------------------------------------------------------------


def delta_rows(
    state: LinearState, anchor: int, position: int, count: int, rows: DeltaInputs
) -> Tensor:
    """The first `count` rows, one after another; stores their window rows. -> [T, Hv, dv] float32.

    `anchor` is the newest chunk whose anchor is stored. A row of a later chunk is computed against
    the folded anchor, which is not stored: whether the rows before it stay is not known yet.
    """
    out = torch.zeros(rows.v.shape, dtype=torch.float32, device=rows.v.device)
    q = ops.l2_normalise(rows.q) * rows.q.shape[-1] ** -0.5
    after: Tensor | None = None
    for r in range(count):
        chunk, w = divmod(position + r, CHUNK)
        if chunk == anchor:
            S = state.anchors[chunk % 2]
        else:
            S = after = folded(state, anchor) if after is None else after
        slot = chunk % RING_CHUNKS
        state.keys[slot, w] = rows.k[r]
        before = state.decays[slot, w - 1] if w else 0.0
        state.decays[slot, w] = rows.g[r] + before
        out[r] = _delta_row(state, slot, w, S, q[r], rows.v[r], rows.beta[r])
    return out


def _delta_row(
    state: LinearState, slot: int, w: int, S: Tensor, q: Tensor, v: Tensor, beta: Tensor
) -> Tensor:
    """Row w of a window whose k and G are stored; stores u. Sums run over all 64 slots."""
    repeat = len(S) // len(q)
    keys = ops.l2_normalise(state.keys[slot])  # [64, Hk, dk]
    pair = torch.stack((keys[w], q), dim=1)  # [Hk, 2, dk]
    dots = torch.bmm(pair, keys.permute(1, 2, 0)).repeat_interleave(repeat, dim=0)  # [Hv, 2, 64]
    G = state.decays[slot].transpose(0, 1)  # [Hv, 64]
    at = G[:, w, None]

    slots = torch.arange(CHUNK, device=S.device)
    decayed = torch.where(slots <= w, dots * torch.exp(at - G)[:, None], 0)
    past = torch.where(slots[:, None, None] < w, state.values[slot], 0)  # [64, Hv, dv]
    seen = torch.bmm(pair.repeat_interleave(repeat, dim=0), S)  # [Hv, 2, dv]
    seen = torch.baddbmm(seen * torch.exp(at)[..., None], decayed, past.transpose(0, 1))

    u = beta[:, None] * (v.float() - seen[:, 0])
    state.values[slot, w] = u
    return seen[:, 1] + decayed[:, 1, w, None] * u


# -- blocks ----------------------------------------------------------------------------------------


@attrs.frozen(eq=False)
class _Grid:
    """A block laid over whole chunks. Known rows stand before it, dead ones behind: both have β 0.

    n chunks; k is normalised, v holds u where it is known.
    """

    q: Tensor
    """[n, Hk, 64, dk]."""
    k: Tensor
    """[n, Hk, 64, dk]."""
    v: Tensor
    """[n, Hv, 64, dv]."""
    beta: Tensor
    """[n, Hv, 64]."""
    G: Tensor
    """[n, Hv, 64]."""
    known: int
    """Rows of the first chunk that the window already had."""


def delta_block(state: LinearState, position: int, rows: DeltaInputs) -> Tensor:
    """All T rows in chunk form; stores anchors and window rows. -> [T, Hv, dv] float32.

    Completes the open window, folds, does the whole chunks and leaves the rest as window rows. A
    chunk that ends with the block is left open, so that a rollback of 64 ids finds its anchor. The
    anchor of the chunk that holds `position` must be stored. Afterwards the anchors of the last two
    chunks are, and their window rows.
    """
    first, known = divmod(position, CHUNK)
    total = known + len(rows.v)
    chunks = -(-total // CHUNK)
    S = state.anchors[first % 2].clone()
    parts: list[Tensor] = []
    for lo in range(0, chunks, CHUNKS_AT_ONCE):
        hi = min(chunks, lo + CHUNKS_AT_ONCE)
        grid = _lay_out(state, first, rows, known, lo, hi)
        anchors, u, o = _chunks(S, grid)
        for i in range(max(0, chunks - 2 - lo), hi - lo):
            _store(state, first + lo + i, grid.G[i], u[i], anchors[i], 0 if lo + i else known)
        S = anchors[-1] if hi == chunks else fold(anchors[-1], grid.k[-1], u[-1], grid.G[-1])
        parts.append(o.transpose(1, 2).flatten(0, 1))  # [64 n, Hv, dv]
    _store_keys(state, position, rows.k)
    return torch.cat(parts)[known:total]


def _lay_out(
    state: LinearState, first: int, rows: DeltaInputs, known: int, lo: int, hi: int
) -> _Grid:
    """Chunks first + lo .. first + hi - 1 of the block."""
    ahead = known if lo == 0 else 0
    start, stop = max(0, lo * CHUNK - known), min(len(rows.v), hi * CHUNK - known)
    behind = (hi - lo) * CHUNK - ahead - (stop - start)
    slot = first % RING_CHUNKS

    def chunked(new: Tensor, old: Tensor | None = None) -> Tensor:
        new = new[start:stop].float()
        if old is None:
            old = new.new_zeros(CHUNK, *new.shape[1:])
        padded = torch.cat((old[:ahead].float(), new, new.new_zeros(behind, *new.shape[1:])))
        return padded.unflatten(0, (-1, CHUNK)).transpose(1, 2)  # [n, heads, 64, ...]

    q, k = chunked(rows.q), chunked(rows.k, state.keys[slot])
    G = chunked(rows.g).cumsum(-1)
    if ahead:
        G[0] += state.decays[slot, ahead - 1][:, None]
        G[0, :, :ahead] = state.decays[slot, :ahead].T
    return _Grid(
        q=ops.l2_normalise(q) * q.shape[-1] ** -0.5,
        k=ops.l2_normalise(k),
        v=chunked(rows.v, state.values[slot]),
        beta=chunked(rows.beta),
        G=G,
        known=ahead,
    )


def _chunks(S: Tensor, grid: _Grid) -> tuple[Tensor, Tensor, Tensor]:
    """Anchors [n, Hv, dk, dv] before each chunk, u [n, Hv, 64, dv], o [n, Hv, 64, dv].

    The chunk's rows depend on each other by the unit lower triangle I + A, with
    A_rs = β_r e^{G_r-G_s} (k_s·k_r); a row that is known, or dead, has β 0 and stands for itself.
    """
    n, heads, _, dv = grid.v.shape
    repeat = heads // grid.k.shape[1]
    k, q = (x.repeat_interleave(repeat, dim=1) for x in (grid.k, grid.q))
    gaps = grid.G[..., :, None] - grid.G[..., None, :]
    lower = torch.ones(CHUNK, CHUNK, dtype=torch.bool, device=S.device).tril()
    decay = torch.exp(torch.where(lower, gaps, -torch.inf))  # [n, Hv, 64, 64]
    A = (grid.beta[..., None] * (k @ k.transpose(2, 3)) * decay).tril(-1)
    grown = torch.exp(grid.G)[..., None]

    wanted = grid.beta[..., None] * grid.v
    wanted[0, :, : grid.known] = grid.v[0, :, : grid.known]
    right = torch.cat((wanted, grid.beta[..., None] * grown * k), dim=-1)
    solved = torch.linalg.solve_triangular(A, right, upper=False, unitriangular=True)
    U, W = solved.split((dv, k.shape[-1]), dim=-1)

    anchors, u = S.new_empty(n, *S.shape), torch.empty_like(grid.v)
    for i in range(n):
        anchors[i] = S
        u[i] = torch.baddbmm(U[i], W[i], S, alpha=-1)
        if i + 1 < n:
            S = fold(S, grid.k[i], u[i], grid.G[i])
    o = grown * (q @ anchors) + ((q @ k.transpose(2, 3)) * decay) @ u
    return anchors, u, o


def _store(
    state: LinearState, chunk: int, G: Tensor, u: Tensor, anchor: Tensor, known: int
) -> None:
    """Keep a chunk's anchor and its window rows from `known` on; dead rows are stored too."""
    slot = chunk % RING_CHUNKS
    state.anchors[chunk % 2] = anchor
    state.values[slot, known:] = u.transpose(0, 1)[known:]
    state.decays[slot, known:] = G.T[known:]


def _store_keys(state: LinearState, position: int, k: Tensor) -> None:
    """Keep the newest keys as they are."""
    end = position + len(k)
    start = max(position, (end - 1) // CHUNK * CHUNK - CHUNK)
    at = torch.arange(start, end, device=k.device) % (RING_CHUNKS * CHUNK)
    state.keys.flatten(0, 1)[at] = k[start - position :]
