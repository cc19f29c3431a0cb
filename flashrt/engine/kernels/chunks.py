"""The gated delta rule of a block of prompt rows, in chunks of 64: convolve, prepare, scan.

References: `flashrt.engine.ops.causal_conv`, `log_decay`, and `flashrt.engine.delta.delta_block`.
For bfloat16 engines. Kernels over all chunks that the block touches:

    convolve   every row's q | k | v, as the engine's dtype rounds them
    relate     per chunk and value head, all at once: how its rows depend on each other
    invert     the inverse T of the chunk's unit lower triangle
    apply      with it, what the rows take of each other (U) and of S (W)
    scan       per value head and columns of S, chunk after chunk: u = U - W S, and the fold
    answer     the outputs, all at once

Keys, queries and values are exact in bfloat16. What meets them on the way to S and u is split into
two or three bfloat16 parts, so the products have 16 to 24 bits; S, u and all sums are float32. Only
the outputs, which are rounded anyway, are made of rounded S and u. The first chunk may have a
window already: its known rows have beta 0 and stand for themselves.
"""

import attrs
import torch
import triton
import triton.language as tl
from torch import Tensor

from flashrt.engine.buffers import CHUNK, RING, RING_CHUNKS, LinearState
from flashrt.engine.kernels.chain import FOLLOWING, follow
from flashrt.engine.kernels.tail import store_tail
from flashrt.engine.kernels.triangle import invert

COLUMNS = 64
"""Value columns of S in one program."""

TILE = 64
"""Columns of U or W in one program."""

_CHUNK = tl.constexpr(CHUNK)
_RING = tl.constexpr(RING)
_SLOTS = tl.constexpr(RING_CHUNKS)
_EPS = tl.constexpr(1e-6)


@triton.jit(do_not_specialize=["rows"])
def _convolve(
    ROWS, row_stride, RAW, TAPS, AT, OUT, rows,
    KERNEL: tl.constexpr, WIDTH: tl.constexpr, TILE: tl.constexpr, CHANNELS: tl.constexpr,
):  # fmt: skip
    """silu of the depthwise convolution, oldest tap first; dead rows are 0."""
    follow()
    pos, count = tl.load(AT), tl.load(AT + 2)
    row = (tl.program_id(0) * TILE + tl.arange(0, TILE))[:, None]
    channel = (tl.program_id(1) * CHANNELS + tl.arange(0, CHANNELS))[None, :]
    live = (row < count) & (channel < WIDTH)
    total = tl.zeros([TILE, CHANNELS], tl.float32)
    for tap in tl.static_range(KERNEL):
        source = row + (tap - (KERNEL - 1))
        kept = RAW + (pos + source + _RING) % _RING * WIDTH
        held = tl.where(source >= 0, ROWS + source * row_stride, kept)
        raw = tl.load(held + channel, mask=live, other=0.0)
        weight = tl.load(TAPS + tap * WIDTH + channel, mask=channel < WIDTH, other=0.0)
        total += raw.to(tl.float32) * weight
    silu = total * tl.sigmoid(total)
    at = OUT + row.to(tl.int64) * WIDTH + channel
    silu = tl.where(live, silu, 0.0).to(OUT.dtype.element_ty)
    tl.store(at, silu, mask=(row < rows) & (channel < WIDTH))


@triton.jit
def _split(x):
    """A float32 x as two bfloat16 parts that hold 16 of its bits."""
    high = x.to(tl.bfloat16)
    return high, (x - high.to(tl.float32)).to(tl.bfloat16)


@triton.jit
def _times_exact(total, a, b):
    """total + a @ b for a float32 `a` and a bfloat16 `b`, with all of a's bits."""
    high, rest = _split(a)
    low = (a - high.to(tl.float32) - rest.to(tl.float32)).to(tl.bfloat16)
    total = tl.dot(low, b, total)
    total = tl.dot(rest, b, total)
    return tl.dot(high, b, total)


@triton.jit
def _chunk_keys(CONV, KEYS, row, known, channel, key_at, live, WIDTH: tl.constexpr):
    """[64, dk] keys of a chunk: its known rows from the window, its new ones convolved."""
    new = tl.load(CONV + row.to(tl.int64) * WIDTH + channel, mask=live, other=0.0)
    old = tl.load(KEYS + key_at, mask=known, other=0.0)
    return tl.where(known, old, new)


@triton.jit
def _decayed(ROWS, row_stride, DT, RATE, DECAYS, r, new, known, HV: tl.constexpr):
    """G [64] of a chunk's rows: known ones as stored, new ones added to the last of them."""
    i = tl.arange(0, _CHUNK)
    a = tl.load(ROWS + r.to(tl.int64) * row_stride, mask=new, other=0.0).to(tl.float32)
    a += tl.load(DT)
    soft = tl.where(a > 20.0, a, tl.log(1.0 + tl.exp(a)))
    added = tl.cumsum(tl.where(new, -tl.load(RATE) * soft, 0.0), 0)
    stored = tl.load(DECAYS + i * HV, mask=known, other=0.0)
    # The newest known row is the last of them: decays only fall.
    return tl.where(known, stored, tl.min(stored, 0) + added)


@triton.jit
def _relate(
    ROWS, row_stride, CONV, KEYS, DECAYS, DT, RATE, AT, A, P, SCALES,
    HK: tl.constexpr, HV: tl.constexpr, DK: tl.constexpr, DV: tl.constexpr,
):  # fmt: skip
    """How the rows of one chunk of one value head depend on each other: A, P, and their scales."""
    follow()
    WIDTH: tl.constexpr = 2 * HK * DK + HV * DV
    h = tl.program_id(1)
    hk = h // (HV // HK)
    pos, count = tl.load(AT), tl.load(AT + 2)
    chunk = pos // _CHUNK + tl.program_id(0)
    base = chunk * _CHUNK
    i, d = tl.arange(0, _CHUNK), tl.arange(0, DK)
    r = base + i - pos
    known, new = r < 0, (r >= 0) & (r < count)
    slot = (chunk % _SLOTS) * _CHUNK
    row, live = r[:, None], new[:, None]
    key_at = ((slot + i) * HK + hk)[:, None] * DK + d[None, :]
    K = _chunk_keys(
        CONV, KEYS, row, known[:, None], ((HK + hk) * DK + d)[None, :], key_at, live, WIDTH
    )
    at = CONV + row.to(tl.int64) * WIDTH
    Q = tl.load(at + (hk * DK + d)[None, :], mask=live, other=0.0)
    gates = ROWS + WIDTH + HV * DV + h
    b = tl.load(gates + r.to(tl.int64) * row_stride, mask=new, other=0.0).to(tl.float32)
    beta = tl.where(new, tl.sigmoid(b), 0.0)
    G = _decayed(gates + HV, row_stride, DT + h, RATE + h, DECAYS + slot * HV + h, r, new,
                 known, HV)  # fmt: skip

    squares = K.to(tl.float32)
    k_inverse = tl.rsqrt(tl.sum(squares * squares, 1) + _EPS)
    squares = Q.to(tl.float32)
    q_inverse = tl.rsqrt(tl.sum(squares * squares, 1) + _EPS) * (1.0 / DK**0.5)
    decay = tl.exp(tl.minimum(G[:, None] - G[None, :], 0.0)) * k_inverse[None, :]
    one = (tl.program_id(0) * HV + h).to(tl.int64)
    square = one * _CHUNK * _CHUNK + i[:, None] * _CHUNK + i[None, :]
    between = tl.dot(K, tl.trans(K)) * decay * (beta * k_inverse)[:, None]
    tl.store(A + square, tl.where(i[:, None] > i[None, :], between, 0.0))
    seen = tl.dot(Q, tl.trans(K)) * decay * q_inverse[:, None]
    seen = tl.where(i[:, None] >= i[None, :], seen, 0.0)
    tl.store(P + square, seen.to(P.dtype.element_ty))
    scales = SCALES + one * 4 * _CHUNK + i
    tl.store(scales, G)
    tl.store(scales + _CHUNK, k_inverse)
    tl.store(scales + 2 * _CHUNK, q_inverse)
    tl.store(scales + 3 * _CHUNK, beta)


@triton.jit
def _apply(
    CONV, KEYS, VALUES, AT, T, SCALES, U, W,
    HK: tl.constexpr, HV: tl.constexpr, DK: tl.constexpr, DV: tl.constexpr, TILE: tl.constexpr,
):  # fmt: skip
    """What the rows of one chunk take of each other's values (U), and of S through keys (W).

    One program makes TILE columns of one of the two.
    """
    follow()
    WIDTH: tl.constexpr = 2 * HK * DK + HV * DV
    h = tl.program_id(1)
    hk = h // (HV // HK)
    pos, count = tl.load(AT), tl.load(AT + 2)
    chunk = pos // _CHUNK + tl.program_id(0)
    base = chunk * _CHUNK
    i = tl.arange(0, _CHUNK)
    r = base + i - pos
    known, new = r < 0, (r >= 0) & (r < count)
    slot = (chunk % _SLOTS) * _CHUNK
    one = (tl.program_id(0) * HV + h).to(tl.int64)
    inverse = tl.load(T + one * _CHUNK * _CHUNK + i[:, None] * _CHUNK + i[None, :])
    scales = SCALES + one * 4 * _CHUNK + i
    beta = tl.load(scales + 3 * _CHUNK)
    if tl.program_id(2) < DV // TILE:
        c = tl.program_id(2) * TILE + tl.arange(0, TILE)
        at = CONV + r[:, None].to(tl.int64) * WIDTH + (2 * HK * DK + h * DV + c)[None, :]
        V = tl.load(at, mask=new[:, None], other=0.0)
        wanted = _times_exact(tl.zeros([_CHUNK, TILE], tl.float32), inverse * beta[None, :], V)
        if base < pos:
            u_at = ((slot + i) * HV + h)[:, None] * DV + c[None, :]
            stored = tl.load(VALUES + u_at, mask=known[:, None], other=0.0)
            wanted = tl.dot(tl.where(known[None, :], inverse, 0.0), stored, wanted,
                            input_precision="ieee")  # fmt: skip
        tl.store(U + one * _CHUNK * DV + i[:, None] * DV + c[None, :], wanted)
    else:
        d = (tl.program_id(2) - DV // TILE) * TILE + tl.arange(0, TILE)
        key_at = ((slot + i) * HK + hk)[:, None] * DK + d[None, :]
        K = _chunk_keys(CONV, KEYS, r[:, None], known[:, None], ((HK + hk) * DK + d)[None, :],
                        key_at, new[:, None], WIDTH)  # fmt: skip
        taken = inverse * (beta * tl.exp(tl.load(scales)) * tl.load(scales + _CHUNK))[None, :]
        taken = _times_exact(tl.zeros([_CHUNK, TILE], tl.float32), taken, K)
        high, low = _split(taken)
        of_S = W + one * 2 * _CHUNK * DK + i[:, None] * DK + d[None, :]
        tl.store(of_S, high)
        tl.store(of_S + _CHUNK * DK, low)


@triton.jit
def _of_chunk(
    CONV, U, W, pos, count, first, ahead, h, hk, c,
    HK: tl.constexpr, HV: tl.constexpr, DK: tl.constexpr, DV: tl.constexpr,
):  # fmt: skip
    """What the scan reads of a chunk: W in two parts [64, dk], U [64, BV], its new keys."""
    i, d = tl.arange(0, _CHUNK), tl.arange(0, DK)
    one = (ahead * HV + h).to(tl.int64)
    of_S = W + one * 2 * _CHUNK * DK + i[:, None] * DK + d[None, :]
    r = (first + ahead) * _CHUNK + i - pos
    key = CONV + r[:, None].to(tl.int64) * (2 * HK * DK + HV * DV) + ((HK + hk) * DK + d)[None, :]
    K = tl.load(key, mask=((r >= 0) & (r < count))[:, None], other=0.0)
    wanted = tl.load(U + one * _CHUNK * DV + i[:, None] * DV + c[None, :])
    return tl.load(of_S), tl.load(of_S + _CHUNK * DK), wanted, K


@triton.jit
def _scan(
    CONV, KEYS, VALUES, DECAYS, ANCHORS, AT, U, W, SCALES, STATES, TAKEN,
    HK: tl.constexpr, HV: tl.constexpr, DK: tl.constexpr, DV: tl.constexpr, BV: tl.constexpr,
):  # fmt: skip
    """Some columns of one value head's S through all chunks; the last one is left open.

    Keeps S before each chunk and its u as the engine's dtype, for the outputs, and stores the
    anchors and the window rows of the last two chunks. A chunk is read while the one before it is
    computed.
    """
    follow()
    h = tl.program_id(0)
    hk = h // (HV // HK)
    pos, count = tl.load(AT), tl.load(AT + 2)
    first, last = pos // _CHUNK, (pos + count - 1) // _CHUNK
    i, d = tl.arange(0, _CHUNK), tl.arange(0, DK)
    c = tl.program_id(1) * BV + tl.arange(0, BV)
    tile = d[:, None] * DV + c[None, :]
    S = tl.load(ANCHORS + ((first % 2) * HV + h) * DK * DV + tile)
    W_high, W_low, wanted, K = _of_chunk(CONV, U, W, pos, count, first, 0, h, hk, c, HK, HV, DK, DV)
    known = (first * _CHUNK + i < pos)[:, None]
    key_at = (((first % _SLOTS) * _CHUNK + i) * HK + hk)[:, None] * DK + d[None, :]
    K = tl.where(known, tl.load(KEYS + key_at, mask=known, other=0.0), K)
    for ahead in tl.range(0, last + 1 - first, num_stages=1):
        chunk = first + ahead
        next_W_high, next_W_low, next_wanted, next_K = _of_chunk(
            CONV, U, W, pos, count, first, tl.minimum(ahead + 1, last - first), h, hk, c,
            HK, HV, DK, DV,
        )  # fmt: skip
        one = (ahead * HV + h).to(tl.int64)
        scales = SCALES + one * 4 * _CHUNK
        G, end = tl.load(scales + i), tl.load(scales + _CHUNK - 1)
        weights = tl.exp(end - G) * tl.load(scales + _CHUNK + i)

        S_high, S_low = _split(S)
        tl.store(STATES + one * DK * DV + tile, S_high)
        taken = tl.dot(W_low, S_high)
        taken = tl.dot(W_high, S_low, taken)
        taken = tl.dot(W_high, S_high, taken)
        u = wanted - taken
        tl.store(TAKEN + one * _CHUNK * DV + i[:, None] * DV + c[None, :], u.to(tl.bfloat16))
        if chunk >= last - 1:
            slot = (chunk % _SLOTS) * _CHUNK
            r = chunk * _CHUNK + i - pos
            new = (r >= 0) & (r < count)
            tl.store(ANCHORS + ((chunk % 2) * HV + h) * DK * DV + tile, S)
            u_at = ((slot + i) * HV + h)[:, None] * DV + c[None, :]
            tl.store(VALUES + u_at, u, mask=new[:, None])
            tl.store(DECAYS + (slot + i) * HV + h, G, mask=new)
        high, low = _split(u * weights[:, None])
        S = tl.dot(tl.trans(K), low, S * tl.exp(end))
        S = tl.dot(tl.trans(K), high, S)
        W_high, W_low, wanted, K = next_W_high, next_W_low, next_wanted, next_K


@triton.jit
def _answer(
    CONV, AT, P, SCALES, STATES, TAKEN, OUT,
    HK: tl.constexpr, HV: tl.constexpr, DK: tl.constexpr, DV: tl.constexpr, BV: tl.constexpr,
):  # fmt: skip
    """Some output columns of one chunk of one value head: what its queries take of S and of u."""
    follow()
    h = tl.program_id(1)
    hk = h // (HV // HK)
    pos, count = tl.load(AT), tl.load(AT + 2)
    i, d = tl.arange(0, _CHUNK), tl.arange(0, DK)
    c = tl.program_id(2) * BV + tl.arange(0, BV)
    r = (pos // _CHUNK + tl.program_id(0)) * _CHUNK + i - pos
    live = ((r >= 0) & (r < count))[:, None]
    row = r[:, None].to(tl.int64)
    one = (tl.program_id(0) * HV + h).to(tl.int64)
    scales = SCALES + one * 4 * _CHUNK + i
    query = CONV + row * (2 * HK * DK + HV * DV) + (hk * DK + d)[None, :]
    Q = tl.load(query, mask=live, other=0.0)
    S = tl.load(STATES + one * DK * DV + d[:, None] * DV + c[None, :])
    o = tl.dot(Q, S) * (tl.load(scales + 2 * _CHUNK) * tl.exp(tl.load(scales)))[:, None]
    seen = tl.load(P + one * _CHUNK * _CHUNK + i[:, None] * _CHUNK + i[None, :])
    u = tl.load(TAKEN + one * _CHUNK * DV + i[:, None] * DV + c[None, :])
    tl.store(OUT + (row * HV + h) * DV + c[None, :], tl.dot(seen, u, o), mask=live)


@attrs.frozen(eq=False)
class Taps:
    """What of a linear layer's weights the rule needs, derived once."""

    conv: Tensor
    """[kernel, C] float32."""
    dt_bias: Tensor
    """[Hv] float32."""
    rate: Tensor
    """[Hv] float32."""


def delta_block(state: LinearState, at: Tensor, rows: Tensor, taps: Taps) -> Tensor:
    """Extend window, anchors and convolution rows by a block; -> o [T, Hv, dv] float32.

    rows [T, C + Hv dv + 2 Hv] bfloat16: the input projection, q | k | v, z, b, a. at int32 [3] on
    the device: position, its chunk, whose anchor must be stored, and how many rows live; dead rows
    leave nothing, and their o is anything. The anchors and window rows of the last two chunks are
    left as `flashrt.engine.delta.delta_block` leaves them.
    """
    count = len(rows)
    kernel, width = taps.conv.shape
    _, hv, dk, dv = state.anchors.shape
    shape = {"HK": state.keys.shape[2], "HV": hv, "DK": dk, "DV": dv}
    chunks = triton.cdiv(count, CHUNK) + 1
    conv = rows.new_empty(count, width)
    _convolve[(triton.cdiv(count, 16), triton.cdiv(width, 256))](
        rows, rows.stride(0), state.raw, taps.conv, at, conv, count,
        KERNEL=kernel, WIDTH=width, TILE=16, CHANNELS=256, num_warps=4, **FOLLOWING,
    )  # fmt: skip
    floats = torch.empty(0, dtype=torch.float32, device=rows.device)
    T = floats.new_empty(chunks, hv, CHUNK, CHUNK)
    P = rows.new_empty(chunks, hv, CHUNK, CHUNK)
    U = floats.new_empty(chunks, hv, CHUNK, dv)
    W = rows.new_empty(chunks, hv, 2, CHUNK, dk)
    scales = floats.new_empty(chunks, hv, 4, CHUNK)
    _relate[(chunks, hv)](
        rows, rows.stride(0), conv, state.keys, state.decays, taps.dt_bias, taps.rate, at, T, P,
        scales, **shape, num_warps=4, **FOLLOWING,
    )  # fmt: skip
    invert(T)
    tile = min(TILE, dk, dv)
    _apply[(chunks, hv, (dk + dv) // tile)](
        conv, state.keys, state.values, at, T, scales, U, W, **shape, TILE=tile, num_warps=4,
        **FOLLOWING,
    )  # fmt: skip
    states = rows.new_empty(chunks, hv, dk, dv)
    taken = rows.new_empty(chunks, hv, CHUNK, dv)
    columns = min(COLUMNS, dv)
    _scan[(hv, dv // columns)](
        conv, state.keys, state.values, state.decays, state.anchors, at, U, W, scales, states,
        taken, **shape, BV=columns, num_warps=8, **FOLLOWING,
    )  # fmt: skip
    o = floats.new_empty(count, hv, dv)
    _answer[(chunks, hv, dv // columns)](
        conv, at, P, scales, states, taken, o, **shape, BV=columns, num_warps=4, **FOLLOWING,
    )  # fmt: skip
    key_rows = conv[:, state.keys[0, 0].numel() : 2 * state.keys[0, 0].numel()]
    store_tail(state.keys.flatten(0, 1).flatten(1), at, key_rows, last_chunks=True)
    store_tail(state.raw, at, rows)
    return o
