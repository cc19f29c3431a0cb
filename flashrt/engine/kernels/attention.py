"""Attention of few rows against a long static K and V, spread over the device by fixed splits.

References: `flashrt.engine.ops.rms_norm`, `rotate`, `sigmoid_gate`, and
`flashrt.engine.attention.attend_rows`. Three kernels: heads are normed, rotated and stored; every
split of the keys gives a partial result; these are added in a fixed order and gated. The borders of
the splits are the same for every length: FINE keys apart at first, so that a short context keeps
many programs busy, and further apart behind, so that a long one has few partial results. Rows times
query heads of one key head are packed into tiles of PACK, so K and V are read once for up to PACK
of them. The last splits, which are the longest, are begun first, so that none of them is still at
work when all others are done. A row sees a key or does not by its own length alone; what it does
not see adds exact zeros.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from flashrt.engine.kernels.chain import FOLLOWING, follow
from flashrt.engine.kernels.kvstore import as_rows, as_stored

FINE, FINE_END = 64, 1024
MIDDLE, MIDDLE_END = 256, 8192
COARSE = 512
"""Keys of a split up to FINE_END, up to MIDDLE_END, and beyond. Part of what fixes bits."""

PACK = 16
KEYS = 64
"""Keys of one step inside a split."""

STAGES, FEW_STAGES, NARROW_STAGES, WARPS = 2, 3, 3, 4
"""Steps under way; where few programs or short ones share a processor's memory; of K and V of 8
bits, which take less room and more work; and warps."""

SHORT = 4096
"""Keys up to which programs are short."""

GATHER = 64
"""Partial results that are added at once, in a fixed order."""

_LOWEST = tl.constexpr(-1e30)
_FINE, _FINE_END = tl.constexpr(FINE), tl.constexpr(FINE_END)
_MIDDLE, _MIDDLE_END = tl.constexpr(MIDDLE), tl.constexpr(MIDDLE_END)
_COARSE = tl.constexpr(COARSE)
_FINES = tl.constexpr(FINE_END // FINE)
_FINER = tl.constexpr(FINE_END // FINE + (MIDDLE_END - FINE_END) // MIDDLE)


@triton.jit
def _border(split):
    """The first key of a split."""
    behind = tl.where(
        split < _FINER,
        _FINE_END + (split - _FINES) * _MIDDLE,
        _MIDDLE_END + (split - _FINER) * _COARSE,
    )
    return tl.where(split < _FINES, split * _FINE, behind)


@triton.jit
def _split_of(key):
    """The split that a key lies in."""
    behind = tl.where(
        key < _MIDDLE_END,
        _FINES + (key - _FINE_END) // _MIDDLE,
        _FINER + (key - _MIDDLE_END) // _COARSE,
    )
    return tl.where(key < _FINE_END, key // _FINE, behind)


def splits_for(keys: int) -> int:
    """How many splits hold keys 0 .. keys - 1."""
    fine = -(-min(keys, FINE_END) // FINE)
    middle = -(-min(max(keys - FINE_END, 0), MIDDLE_END - FINE_END) // MIDDLE)
    return fine + middle + -(-max(keys - MIDDLE_END, 0) // COARSE)


@triton.jit
def _prepare(
    ROWS, row_stride, Q_SCALE, K_SCALE, COS, SIN, AT, Q, KV, length, eps,
    H: tl.constexpr, HKV: tl.constexpr, D: tl.constexpr, ROTARY: tl.constexpr,
):  # fmt: skip
    """One head of one row: q and k normed and rotated, k and v into the static buffers."""
    follow()
    m, h = tl.program_id(0), tl.program_id(1)
    d = tl.arange(0, D)
    at = tl.load(AT) + m
    kept = (m < tl.load(AT + 2)) & (at < length)
    if h >= H + HKV:
        v = tl.load(ROWS + m * row_stride + (2 * H + HKV) * D + (h - H - HKV) * D + d)
        row = ((HKV + h - H - HKV) * length + at).to(tl.int64)
        tl.store(KV + row * D + d, as_stored(v, KV.dtype.element_ty), mask=kept & (d < D))
    else:
        is_q = h < H
        head = ROWS + m * row_stride + tl.where(is_q, 2 * h, h + H) * D
        SCALE = Q_SCALE if is_q else K_SCALE
        half: tl.constexpr = ROTARY // 2
        other = tl.where(d < half, d + half, tl.where(d < ROTARY, d - half, d))
        x = tl.load(head + d).to(tl.float32)
        inverse = tl.rsqrt(tl.sum(x * x, 0) / D + eps)
        # The norm is rounded before it is rotated, as the reference rounds it.
        x = (x * inverse * tl.load(SCALE + d)).to(Q.dtype.element_ty).to(tl.float32)
        y = tl.load(head + other).to(tl.float32)
        y = (y * inverse * tl.load(SCALE + other)).to(Q.dtype.element_ty).to(tl.float32)
        angle = at * half + d % half
        cos = tl.load(COS + angle, mask=(d < ROTARY) & (at < length), other=1.0)
        sin = tl.load(SIN + angle, mask=(d < ROTARY) & (at < length), other=0.0)
        turned = x * cos + tl.where(d < half, -y, y) * sin
        turned = turned.to(Q.dtype.element_ty)
        if is_q:
            tl.store(Q + (m * H + h) * D + d, turned)
        else:
            row = ((h - H) * length + at).to(tl.int64)
            tl.store(KV + row * D + d, as_stored(turned, KV.dtype.element_ty), mask=kept & (d < D))


@triton.jit(do_not_specialize=["rows", "splits"])
def _one_split(
    Q, KV, AT, PARTIAL, TOP, TOTAL, rows, length, splits,
    H: tl.constexpr, HKV: tl.constexpr, D: tl.constexpr,
    KEYS: tl.constexpr, PACK: tl.constexpr, STAGES: tl.constexpr, EXACT: tl.constexpr,
):  # fmt: skip
    """PACK (row, head) pairs of one key head against one split; the last split comes first."""
    follow()
    GROUP: tl.constexpr = H // HKV
    packed = tl.program_id(0) * PACK + tl.arange(0, PACK)
    hk = tl.program_id(1)
    m = packed // GROUP
    live = m < rows
    head = m * H + hk * GROUP + packed % GROUP
    pos = tl.load(AT)
    end = tl.minimum(pos + tl.load(AT + 2), length)
    last = tl.minimum(_split_of(tl.maximum(end - 1, 0)), splits - 1)
    split = last - tl.program_id(2)
    start = _border(split)
    stop = tl.minimum(_border(split + 1), end)
    if (split >= 0) & (start < stop):
        d, n = tl.arange(0, D), tl.arange(0, KEYS)
        q = tl.load(Q + head[:, None] * D + d[None, :], mask=live[:, None], other=0.0)
        top = tl.full([PACK], _LOWEST, tl.float32)
        total = tl.zeros([PACK], tl.float32)
        out = tl.zeros([PACK, D], tl.float32)
        k_base = KV + hk.to(tl.int64) * length * D
        v_base = k_base + HKV * length.to(tl.int64) * D
        for lo in tl.range(start, stop, KEYS, num_stages=STAGES):
            key = lo + n
            inside = (key < stop)[:, None]
            k = tl.load(k_base + key[:, None] * D + d[None, :], mask=inside, other=0.0)
            v = tl.load(v_base + key[:, None] * D + d[None, :], mask=inside, other=0.0)
            seen = key[None, :] <= pos + m[:, None]
            k = as_rows(k, q.dtype)
            scores = tl.dot(q, tl.trans(k), input_precision="ieee") * (1.0 / D**0.5)
            scores = tl.where(seen, scores, _LOWEST)
            higher = tl.maximum(top, tl.max(scores, 1))
            kept = tl.exp(top - higher)
            weights = tl.where(seen, tl.exp(scores - higher[:, None]), 0.0)
            total = total * kept + tl.sum(weights, 1)
            v = as_rows(v, q.dtype)
            out = tl.dot(weights.to(v.dtype), v, out * kept[:, None], input_precision="ieee")
            top = higher
        at = head.to(tl.int64) * splits + split
        tl.store(PARTIAL + at[:, None] * D + d[None, :], out, mask=live[:, None])
        tl.store(TOP + at, top, mask=live)
        tl.store(TOTAL + at, total, mask=live)


@triton.jit(do_not_specialize=["splits"])
def _combine(
    PARTIAL, TOP, TOTAL, AT, ROWS, row_stride, Y, splits,
    H: tl.constexpr, D: tl.constexpr, COLUMNS: tl.constexpr,
    BLOCK: tl.constexpr, GATHER: tl.constexpr, GATED: tl.constexpr,
):  # fmt: skip
    """The splits that a row has keys in, GATHER at a time from 0; then the gate."""
    follow()
    m, h = tl.program_id(0), tl.program_id(1)
    d = tl.program_id(2) * COLUMNS + tl.arange(0, COLUMNS)
    s = tl.arange(0, BLOCK)
    at = (m * H + h).to(tl.int64) * splits
    count = tl.minimum(_split_of(tl.load(AT) + m) + 1, splits)
    top = tl.max(tl.load(TOP + at + s, mask=s < count, other=_LOWEST), 0)
    total = 0.0
    out = tl.zeros([COLUMNS], tl.float32)
    for lo in range(0, count, GATHER):
        split = lo + tl.arange(0, GATHER)
        live = split < count
        share = tl.exp(tl.load(TOP + at + split, mask=live, other=_LOWEST) - top)
        partial = tl.load(
            PARTIAL + (at + split)[:, None] * D + d[None, :], mask=live[:, None], other=0.0
        )
        total += tl.sum(share * tl.load(TOTAL + at + split, mask=live, other=0.0), 0)
        out += tl.sum(share[:, None] * partial, 0)
    out = out / total
    if GATED:
        gate = tl.load(ROWS + m * row_stride + (2 * h + 1) * D + d).to(tl.float32)
        out = out * tl.sigmoid(gate)
    tl.store(Y + (m * H + h) * D + d, out.to(Y.dtype.element_ty))


def prepare(
    rows: Tensor,
    kv: Tensor,
    at: Tensor,
    scales: tuple[Tensor, Tensor],
    tables: tuple[Tensor, Tensor],
    heads: int,
    eps: float,
) -> Tensor:
    """Store the new rows' K and V in the dtype of `kv`; -> q [M, H, d], normed and rotated.

    rows [M, 2 H d + 2 Hkv d]: per query head q then gate, then k, then v. kv [2, Hkv, L, d];
    dead rows and rows that would lie beyond L are dropped. scales: of q and k, [d] float32. tables:
    cos and sin [L or more, 1, r] float32. at int32 [3]: position, an anchor that is not read here,
    and how many rows live.
    """
    _, kv_heads, length, d = kv.shape
    q = rows.new_empty(len(rows), heads, d)
    _prepare[(len(rows), heads + 2 * kv_heads)](
        rows, rows.stride(0), *scales, *tables, at, q, kv, length, eps,
        H=heads, HKV=kv_heads, D=d, ROTARY=2 * tables[0].shape[-1], num_warps=1, **FOLLOWING,
    )  # fmt: skip
    return q


def attend_rows(q: Tensor, kv: Tensor, at: Tensor, keys: int, rows: Tensor | None = None) -> Tensor:
    """Causal attention of q [M, H, d] at the device position, of `keys` keys at most.

    -> [M, H, d]: times sigmoid(gate) in q's dtype where the projection `rows` is given, else
    float32. A bound of more keys than there are changes no bit.
    """
    count, heads, d = q.shape
    _, kv_heads, length, _ = kv.shape
    splits = splits_for(min(keys, length))
    exact = q.dtype == torch.float32
    floats = torch.empty(0, dtype=torch.float32, device=q.device)
    partial = floats.new_empty(count * heads, splits, d)
    top, total = floats.new_empty(2, count * heads, splits)
    packs = triton.cdiv(count * (heads // kv_heads), PACK)
    stages = _stages(kv, packs, keys)
    _one_split[(packs, kv_heads, splits)](
        q, kv, at, partial, top, total, count, length, splits,
        H=heads, HKV=kv_heads, D=d, KEYS=16 if exact else KEYS, PACK=PACK,
        STAGES=1 if exact else stages, EXACT=exact, num_warps=WARPS, **FOLLOWING,
    )  # fmt: skip
    y = torch.empty_like(q) if rows is not None else floats.new_empty(q.shape)
    columns = min(d, 64)
    _combine[(count, heads, d // columns)](
        partial, top, total, at, q if rows is None else rows,
        0 if rows is None else rows.stride(0), y, splits,
        H=heads, D=d, COLUMNS=columns, BLOCK=triton.next_power_of_2(splits),
        GATHER=GATHER, GATED=rows is not None, num_warps=4, **FOLLOWING,
    )  # fmt: skip
    return y


def _stages(kv: Tensor, packs: int, keys: int) -> int:
    if kv.itemsize == 1:
        return NARROW_STAGES
    return FEW_STAGES if packs == 1 or keys <= SHORT else STAGES
