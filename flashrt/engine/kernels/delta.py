"""Convolution, gates and the gated delta rule of few rows, in one kernel.

References: `flashrt.engine.ops.causal_conv`, `log_decay`; `flashrt.engine.delta.delta_rows`,
`folded`. One program holds some columns of one value head's S and goes through the chunks from the
newest stored anchor to the last row: the fold into the chunk, then its rows, at most STEP at once.

What makes a row's bits its own, however rows are grouped: a sum over the window begins with what
the row reads of S and goes on slot by slot, one multiply-add each, first over slots that are stored
and then over rows of the same step; slots out of reach add exact zeros. Every product of keys and
queries, and every square of one, is an element of a product on the matrix unit, whose bits depend
on nothing but its two rows. A fold is the same code over the stored window, whether its
result is stored or only used.

Keys and queries are exact in the engine's dtype; what multiplies them and is float32 is split into
three bfloat16 parts, which together hold all of its 24 bits.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from flashrt.engine.buffers import CHUNK, RING, RING_CHUNKS, Buffers, LinearState
from flashrt.engine.kernels.chain import FOLLOWING, follow

STEP, LONG_STEP = 8, 16
"""Rows that are computed together, in calls of up to STEP rows and in longer ones."""

_CHUNK = tl.constexpr(CHUNK)
_RING = tl.constexpr(RING)
_SLOTS = tl.constexpr(RING_CHUNKS)
_GROUP = tl.constexpr(32)
_EPS = tl.constexpr(1e-6)


@triton.jit
def _product(a, b, EXACT: tl.constexpr):
    """a @ b, both of the engine's dtype, float32 sums."""
    if EXACT:
        product = tl.dot(a, b, input_precision="ieee")
    else:
        product = tl.dot(a, b)
    return product


@triton.jit
def _add_product(total, a, b, EXACT: tl.constexpr):
    """total + a @ b for an `a` of the engine's dtype and a float32 b."""
    if EXACT:
        total = tl.dot(a, b, total, input_precision="ieee")
    else:
        high = b.to(tl.bfloat16)
        rest = b - high.to(tl.float32)
        middle = rest.to(tl.bfloat16)
        low = (rest - middle.to(tl.float32)).to(tl.bfloat16)
        total = tl.dot(a, low, total)
        total = tl.dot(a, middle, total)
        total = tl.dot(a, high, total)
    return total


@triton.jit
def _inverse_norms(squares, COUNT: tl.constexpr):
    """1 / |x| of rows, from the diagonal of their products with each other [COUNT, COUNT]."""
    i = tl.arange(0, COUNT)
    return tl.rsqrt(tl.sum(tl.where(i[:, None] == i[None, :], squares, 0.0), 1) + _EPS)


@triton.jit
def _convolved(
    ROWS, row_stride, RAW, TAPS, row, channel, live, pos,
    KERNEL: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    """silu of the depthwise convolution at new rows `row` [R, 1], and the raw rows.

    Rows before the first new one come from the ring; summed oldest first; dead rows are 0.
    """
    total = tl.zeros(channel.shape, tl.float32)
    raw = tl.zeros(channel.shape, ROWS.dtype.element_ty)
    for tap in tl.static_range(KERNEL):
        source = row + (tap - (KERNEL - 1))
        kept = RAW + (pos + source + _RING) % _RING * WIDTH
        held = tl.where(source >= 0, ROWS + source * row_stride, kept)
        raw = tl.load(held + channel, mask=live, other=0.0)
        weight = tl.load(TAPS + tap * WIDTH + channel, mask=live, other=0.0)
        total += raw.to(tl.float32) * weight
    silu = total * tl.sigmoid(total)
    return tl.where(live, silu, 0.0).to(ROWS.dtype.element_ty), raw


@triton.jit
def _decays(GATES, row_stride, DT, RATE, count, top, STEP: tl.constexpr):
    """G of the new rows, added one by one to `top`, twice over [2 STEP]; and the last one."""
    j = tl.arange(0, 2 * STEP) % STEP
    bias, rate = tl.load(DT), tl.load(RATE)
    G = tl.zeros([2 * STEP], tl.float32)
    for i in tl.static_range(STEP):
        a = tl.load(GATES + i * row_stride, mask=i < count, other=0.0).to(tl.float32) + bias
        soft = tl.where(a > 20.0, a, tl.log(1.0 + tl.exp(a)))
        top = tl.where(i < count, top - rate * soft, top)
        G = tl.where(j == i, top, G)
    return G, top


@triton.jit
def _fold(
    FROM, TO, KEYS, VALUES, DECAYS, key_stride, value_stride, HV: tl.constexpr, d, c, tile,
    EXACT: tl.constexpr,
):  # fmt: skip
    """S [dk, BV] after a whole stored chunk, from memory to memory: it is never kept twice."""
    i = tl.arange(0, _GROUP)
    end = tl.load(DECAYS + (_CHUNK - 1) * HV)
    S = tl.load(FROM + tile) * tl.exp(end)
    for s0 in range(0, _CHUNK, _GROUP):
        s = s0 + i
        K = tl.load(KEYS + s[:, None] * key_stride + d[None, :])
        U = tl.load(VALUES + s[:, None] * value_stride + c[None, :])
        weights = tl.exp(end - tl.load(DECAYS + s * HV))
        weights *= _inverse_norms(_product(K, tl.trans(K), EXACT), _GROUP)
        S = _add_product(S, tl.trans(K), U * weights[:, None], EXACT)
    tl.store(TO + tile, S)


@triton.jit
def _state_at(
    chunk, first, pos, ANCHORS, SPARE, KEYS, VALUES, DECAYS, d, c,
    key_stride, HV: tl.constexpr, DK: tl.constexpr, DV: tl.constexpr, EXACT: tl.constexpr,
):  # fmt: skip
    """S [dk, BV] before `chunk`: the `first` one is stored, the others are folded one by one.

    Behind the position's own chunk nothing is settled: such a fold is used and not stored.
    """
    tile = d[:, None] * DV + c[None, :]
    held = ANCHORS + (chunk % 2) * HV * DK * DV
    if chunk > first:
        held = tl.where(chunk * _CHUNK <= pos, held, SPARE)
        slot = ((chunk - 1) % _SLOTS) * _CHUNK
        _fold(
            ANCHORS + ((chunk - 1) % 2) * HV * DK * DV, held, KEYS + slot * key_stride,
            VALUES + slot * HV * DV, DECAYS + slot * HV, key_stride, HV * DV, HV, d, c, tile, EXACT,
        )  # fmt: skip
        tl.debug_barrier()
    return tl.load(held + tile)


@triton.jit
def _read_window(
    acc, pair, inverse, G_rows, KEYS, VALUES, DECAYS, key_stride, value_stride, HV: tl.constexpr,
    w0, d, c, EXACT: tl.constexpr,
):  # fmt: skip
    """acc [2 STEP, BV] plus what keys and queries take of the u in slots below w0."""
    i = tl.arange(0, _GROUP)
    for s0 in range(0, w0, _GROUP):
        s = s0 + i
        stored = s < w0
        K = tl.load(KEYS + s[:, None] * key_stride + d[None, :], mask=stored[:, None], other=0.0)
        U = tl.load(
            VALUES + s[:, None] * value_stride + c[None, :], mask=stored[:, None], other=0.0
        )
        G = tl.load(DECAYS + s * HV, mask=stored, other=0.0)
        norms = _inverse_norms(_product(K, tl.trans(K), EXACT), _GROUP)
        dots = _product(pair, tl.trans(K), EXACT) * inverse[:, None] * norms[None, :]
        decay = tl.exp(tl.where(stored[None, :], G_rows[:, None] - G[None, :], 0.0))
        weights = tl.where(stored[None, :], decay * dots, 0.0)
        acc = tl.dot(weights, U, acc, input_precision="ieee")
    return acc


@triton.jit
def _solve(acc, wanted, beta, dots, inverse, G_rows, count, STEP: tl.constexpr):
    """Go on through the rows of one step: -> acc with them, and their u, both [2 STEP, BV].

    Row j of the first half is a key, of the second its query; dots [2 STEP, 2 STEP].
    """
    jj = tl.arange(0, 2 * STEP)
    is_key = jj < STEP
    dots = dots * inverse[:, None] * inverse[None, :]
    decay = tl.exp(tl.minimum(G_rows[:, None] - G_rows[None, :], 0.0))
    before = (jj[None, :] < jj[:, None]) & is_key[:, None]
    up_to = (jj[None, :] <= jj[:, None] - STEP) & (jj >= STEP)[:, None]
    weights = tl.where((before | up_to) & is_key[None, :], decay * dots, 0.0)
    u = tl.zeros(acc.shape, tl.float32)
    for i in range(count):
        mine = (jj == i)[:, None]
        new = tl.sum(tl.where(mine, beta[:, None] * (wanted - acc), 0.0), 0)  # [BV]
        share = tl.sum(tl.where((jj == i)[None, :], weights, 0.0), 1)  # [2 STEP]
        acc += share[:, None] * new[None, :]
        u = tl.where(mine, new[None, :], u)
    return acc, u


@triton.jit
def _keep(
    KEYS, VALUES, DECAYS, RAW, pair, u, G, raw, v_raw, channel, v_channel, d, c, pos, count,
    key_stride, value_stride, HV: tl.constexpr, WIDTH: tl.constexpr, STEP: tl.constexpr,
):  # fmt: skip
    """Store a step's rows. Programs that share a key head store the same bytes."""
    jj = tl.arange(0, 2 * STEP)
    j = jj % STEP
    live = (j < count)[:, None]
    as_key = live & (jj < STEP)[:, None]
    tl.store(KEYS + j[:, None] * key_stride + d[None, :], pair, mask=as_key)
    tl.store(VALUES + j[:, None] * value_stride + c[None, :], u, mask=as_key)
    tl.store(DECAYS + j * HV, G, mask=(j < count) & (jj < STEP))
    ring = ((pos + j) % _RING)[:, None] * WIDTH
    tl.store(RAW + ring + channel, raw, mask=live)
    tl.store(RAW + ring + v_channel, v_raw, mask=as_key)


@triton.jit
def _delta_rows(
    ROWS, row_stride, RAW, KEYS, VALUES, DECAYS, ANCHORS, SPARE, TAPS, DT, RATE, AT, OUT,
    HK: tl.constexpr, HV: tl.constexpr, DK: tl.constexpr, DV: tl.constexpr, BV: tl.constexpr,
    KERNEL: tl.constexpr, STEP: tl.constexpr, EXACT: tl.constexpr,
):  # fmt: skip
    """All new rows of one value head's columns. AT: position, newest stored anchor, rows."""
    follow()
    WIDTH: tl.constexpr = 2 * HK * DK + HV * DV
    h = tl.program_id(0)
    hk = h // (HV // HK)
    d = tl.arange(0, DK)
    c = tl.program_id(1) * BV + tl.arange(0, BV)
    jj = tl.arange(0, 2 * STEP)
    j, is_key = jj % STEP, jj < STEP
    channel = tl.where(is_key, HK + hk, hk)[:, None] * DK + d[None, :]
    v_channel = (2 * HK * DK + h * DV + c)[None, :] + tl.zeros([2 * STEP, 1], tl.int32)

    pos, first, rows = tl.load(AT), tl.load(AT + 1), tl.load(AT + 2)
    last = (pos + rows - 1) // _CHUNK
    for chunk in range(first, last + 1):
        base = chunk * _CHUNK
        slot = (chunk % _SLOTS) * _CHUNK
        K0 = KEYS + (slot * HK + hk) * DK
        U0 = VALUES + (slot * HV + h) * DV
        G0 = DECAYS + slot * HV + h
        S = _state_at(chunk, first, pos, ANCHORS + h * DK * DV, SPARE + h * DK * DV,
                      KEYS + hk * DK, VALUES + h * DV, DECAYS + h, d, c, HK * DK, HV, DK, DV,
                      EXACT)  # fmt: skip
        known = tl.minimum(tl.maximum(pos - base, 0), _CHUNK)
        top = tl.load(G0 + (known - 1) * HV, mask=known > 0, other=0.0)
        for r0 in range(tl.maximum(base - pos, 0), tl.minimum(base + _CHUNK - pos, rows), STEP):
            w0 = pos + r0 - base
            count = tl.minimum(tl.minimum(rows - r0, _CHUNK - w0), STEP)
            live = (j < count)[:, None]
            as_key, as_query = live & is_key[:, None], live & (jj >= STEP)[:, None]
            row = (r0 + j)[:, None]
            pair, raw = _convolved(ROWS, row_stride, RAW, TAPS, row, channel, live, pos,
                                   KERNEL, WIDTH)  # fmt: skip
            v, v_raw = _convolved(ROWS, row_stride, RAW, TAPS, row, v_channel, as_key, pos,
                                  KERNEL, WIDTH)  # fmt: skip
            gates = ROWS + r0 * row_stride + WIDTH + HV * DV + h
            beta = tl.load(gates + j * row_stride, mask=(j < count) & is_key, other=0.0)
            beta = tl.sigmoid(beta.to(tl.float32))
            G, top = _decays(gates + HV, row_stride, DT + h, RATE + h, count, top, STEP)

            dots = _product(pair, tl.trans(pair), EXACT)
            inverse = _inverse_norms(dots, 2 * STEP)
            scaled = tl.where(is_key, inverse, inverse * (1.0 / DK**0.5))
            acc = _add_product(tl.zeros([2 * STEP, BV], tl.float32), pair, S, EXACT)
            acc = acc * (scaled * tl.exp(G))[:, None]
            acc = _read_window(acc, pair, scaled, G, K0, U0, G0, HK * DK, HV * DV, HV, w0, d, c,
                               EXACT)  # fmt: skip
            acc, u = _solve(acc, v.to(tl.float32), beta, dots, scaled, G, count, STEP)

            _keep(
                K0 + w0 * HK * DK, U0 + w0 * HV * DV, G0 + w0 * HV, RAW, pair, u, G, raw, v_raw,
                channel, v_channel, d, c, pos + r0, count, HK * DK, HV * DV, HV, WIDTH, STEP,
            )  # fmt: skip
            tl.store(OUT + (row * HV + h) * DV + c[None, :], acc, mask=as_query)
            tl.debug_barrier()  # the next step, or the fold, reads what was stored


@triton.jit(do_not_specialize=["chunk"])
def _fold_chunk(
    KEYS, VALUES, DECAYS, ANCHORS, OUT, chunk,
    HK: tl.constexpr, HV: tl.constexpr, DK: tl.constexpr, DV: tl.constexpr, BV: tl.constexpr,
    EXACT: tl.constexpr,
):  # fmt: skip
    """The fold of a whole chunk of one layer, on the tiles that `_delta_rows` folds."""
    h, layer = tl.program_id(0), tl.program_id(2).to(tl.int64)
    d = tl.arange(0, DK)
    c = tl.program_id(1) * BV + tl.arange(0, BV)
    slot = layer * _RING + (chunk % _SLOTS) * _CHUNK
    tile = d[:, None] * DV + c[None, :]
    _fold(
        ANCHORS + ((layer * 2 + chunk % 2) * HV + h) * DK * DV, OUT + (layer * HV + h) * DK * DV,
        KEYS + (slot * HK + h // (HV // HK)) * DK, VALUES + (slot * HV + h) * DV,
        DECAYS + slot * HV + h, HK * DK, HV * DV, HV, d, c, tile, EXACT,
    )  # fmt: skip


COLUMNS = 64
"""Value columns of a head in one program. Part of what fixes bits."""


def _shape(state: LinearState | Buffers, columns: int) -> dict[str, int]:
    """The constants of one layer; `columns` is BV."""
    hv, dk, dv = state.anchors.shape[-3:]
    bv = min(columns, dv)
    return {
        "HK": state.keys.shape[-2], "HV": hv, "DK": dk, "DV": dv, "BV": bv,
        "EXACT": state.keys.dtype == torch.float32, "num_warps": max(4, bv // 8),
    }  # fmt: skip


def delta_rows(
    state: LinearState,
    at: Tensor,
    rows: Tensor,
    taps: Tensor,
    dt_bias: Tensor,
    rate: Tensor,
    columns: int = COLUMNS,
) -> Tensor:
    """Extend the window by `rows`; -> o [M, Hv, dv] float32.

    rows [M, C + Hv dv + 2 Hv]: the input projection, q | k | v, z, b, a. at int32 [3] on the
    device: position, the newest chunk whose anchor is stored, and how many rows live; where that
    anchor is older than the position's own, those in between are folded and stored. Dead rows leave
    nothing, and their o is anything. taps [kernel, C], dt_bias and rate
    [Hv] float32.
    """
    shape = _shape(state, columns)
    o = torch.empty(len(rows), shape["HV"], shape["DV"], dtype=torch.float32, device=rows.device)
    _delta_rows[(shape["HV"], shape["DV"] // shape["BV"])](
        rows, rows.stride(0), state.raw, state.keys, state.values, state.decays, state.anchors,
        torch.empty_like(state.anchors[0]), taps, dt_bias, rate, at, o,
        KERNEL=len(taps), STEP=STEP if len(rows) <= STEP else LONG_STEP, **shape, **FOLLOWING,
    )  # fmt: skip
    return o


def folded(state: LinearState | Buffers, chunk: int, columns: int = COLUMNS) -> Tensor:
    """The anchor after `chunk` [Hv, dk, dv], with the bits that `delta_rows` would store.

    Of a model's buffers: those of all its layers [Ll, Hv, dk, dv] in one launch.
    """
    shape = _shape(state, columns)
    out = state.anchors.new_empty(*state.anchors.shape[:-4], *state.anchors.shape[-3:])
    layers = out.numel() // (shape["HV"] * shape["DK"] * shape["DV"])
    _fold_chunk[(shape["HV"], shape["DV"] // shape["BV"], layers)](
        state.keys, state.values, state.decays, state.anchors, out, chunk, **shape
    )
    return out
