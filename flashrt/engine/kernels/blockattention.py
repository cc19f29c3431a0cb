"""Attention of a block of prompt rows against a long static K and V.

References: `flashrt.engine.attention.attend_block`, and `flashrt.engine.ops.sigmoid_gate`. Rows
times query heads of one key head are packed into tiles of PACK, so a key is read once for many of
them. Keys are cut at fixed borders, so that few rows behind many keys keep a device busy too; the
partial results are added in order and gated. Position and number of rows are read on the device.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from flashrt.engine.kernels.chain import FOLLOWING, follow
from flashrt.engine.kernels.kvstore import as_rows

PACK = 128
"""(row, head) pairs of one program."""

KEYS, STAGES = 64, 2
"""Keys of one step inside a split, and steps under way."""

NARROW_KEYS, NARROW_STAGES = 32, 3
"""The same of K and V of 8 bits: unpacked they take registers."""

SHORT, SHORT_SPLIT, LONG_SPLIT = 128, 2048, 8192
"""Blocks of up to SHORT rows have splits of SHORT_SPLIT keys, longer ones of LONG_SPLIT."""

_LOWEST = tl.constexpr(-1e30)
_LOG2E = tl.constexpr(1.4426950408889634)


@triton.jit
def _step(
    q, top, total, out, k_base, v_base, lo, stop, own, scale,
    D: tl.constexpr, KEYS: tl.constexpr, MASKED: tl.constexpr,
):  # fmt: skip
    """KEYS more keys for a tile; `own` [PACK] is the last key that each of its rows sees."""
    d = tl.arange(0, D)
    key = lo + tl.arange(0, KEYS)
    at = key[:, None] * D + d[None, :]
    if MASKED:
        k = tl.load(k_base + at, mask=(key < stop)[:, None], other=0.0)
        v = tl.load(v_base + at, mask=(key < stop)[:, None], other=0.0)
    else:
        k = tl.load(k_base + at)
        v = tl.load(v_base + at)
    scores = tl.dot(q, tl.trans(as_rows(k, q.dtype))) * scale
    if MASKED:
        seen = (key[None, :] <= own[:, None]) & (key < stop)[None, :]
        scores = tl.where(seen, scores, _LOWEST)
    higher = tl.maximum(top, tl.max(scores, 1))
    kept = tl.exp2(top - higher)
    weights = tl.exp2(scores - higher[:, None])
    if MASKED:
        weights = tl.where(seen, weights, 0.0)
    total = total * kept + tl.sum(weights, 1)
    out = tl.dot(weights.to(q.dtype), as_rows(v, q.dtype), out * kept[:, None])
    return higher, total, out


@triton.jit(do_not_specialize=["splits"])
def _attend(
    Q, KV, AT, PARTIAL, TOP, TOTAL, length, splits,
    H: tl.constexpr, HKV: tl.constexpr, D: tl.constexpr, SPLIT: tl.constexpr,
    PACK: tl.constexpr, KEYS: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """One tile of (row, head) pairs of one key head against one split."""
    follow()
    GROUP: tl.constexpr = H // HKV
    pos, count = tl.load(AT), tl.load(AT + 2)
    split, hk = tl.program_id(1), tl.program_id(2)
    packed = tl.program_id(0) * PACK + tl.arange(0, PACK)
    first = tl.program_id(0) * PACK // GROUP
    last = tl.minimum((tl.program_id(0) * PACK + PACK - 1) // GROUP, count - 1)
    start = split * SPLIT
    stop = tl.minimum(start + SPLIT, pos + last + 1)
    if (start < stop) & (first < count):
        m = packed // GROUP
        live = m < count
        head = m * H + hk * GROUP + packed % GROUP
        d = tl.arange(0, D)
        q = tl.load(Q + head[:, None] * D + d[None, :], mask=live[:, None], other=0.0)
        top = tl.full([PACK], _LOWEST, tl.float32)
        total = tl.zeros([PACK], tl.float32)
        out = tl.zeros([PACK, D], tl.float32)
        k_base = KV + hk.to(tl.int64) * length * D
        v_base = k_base + HKV * length.to(tl.int64) * D
        scale = _LOG2E / D**0.5
        # Keys up to the first row's own are seen by every row.
        whole = start + tl.maximum(tl.minimum(stop, pos + first + 1) - start, 0) // KEYS * KEYS
        for lo in tl.range(start, whole, KEYS, num_stages=STAGES):
            top, total, out = _step(q, top, total, out, k_base, v_base, lo, stop, pos + m, scale,
                                    D, KEYS, False)  # fmt: skip
        for lo in tl.range(whole, stop, KEYS, num_stages=1):
            top, total, out = _step(q, top, total, out, k_base, v_base, lo, stop, pos + m, scale,
                                    D, KEYS, True)  # fmt: skip
        at = (head.to(tl.int64)) * splits + split
        tl.store(PARTIAL + at[:, None] * D + d[None, :], out, mask=live[:, None])
        tl.store(TOP + at, top, mask=live)
        tl.store(TOTAL + at, total, mask=live)


@triton.jit(do_not_specialize=["splits"])
def _combine(
    PARTIAL, TOP, TOTAL, AT, ROWS, row_stride, Y, splits,
    H: tl.constexpr, D: tl.constexpr, SPLIT: tl.constexpr,
):  # fmt: skip
    """Add the splits that a row has keys in, from 0 on; then the gate."""
    follow()
    m, h = tl.program_id(0), tl.program_id(1)
    if m < tl.load(AT + 2):
        d = tl.arange(0, D)
        at = (m * H + h).to(tl.int64) * splits
        top = _LOWEST + 0.0
        total = 0.0
        out = tl.zeros([D], tl.float32)
        for split in range((tl.load(AT) + m) // SPLIT + 1):
            their = tl.load(TOP + at + split)
            higher = tl.maximum(top, their)
            kept, share = tl.exp2(top - higher), tl.exp2(their - higher)
            total = total * kept + share * tl.load(TOTAL + at + split)
            out = out * kept + share * tl.load(PARTIAL + (at + split) * D + d)
            top = higher
        gate = tl.load(ROWS + m.to(tl.int64) * row_stride + (2 * h + 1) * D + d).to(tl.float32)
        out = out / total * tl.sigmoid(gate)
        tl.store(Y + (m * H + h).to(tl.int64) * D + d, out.to(Y.dtype.element_ty))


def split_for(rows: int) -> int:
    """Keys of a split for a block of so many rows."""
    return SHORT_SPLIT if rows <= SHORT else LONG_SPLIT


def attend_block(q: Tensor, kv: Tensor, at: Tensor, keys: int, rows: Tensor) -> Tensor:
    """Causal attention of q [T, H, d] at the device position, times its gates -> [T, H, d].

    kv [2, Hkv, L, d] holds the new rows already; of its keys at most `keys` are seen. rows: the
    projection, per query head q then gate. at int32 [3]: position, an anchor that is not read here,
    and how many rows live; what becomes of dead rows is anything.
    """
    count, heads, d = q.shape
    _, kv_heads, length, _ = kv.shape
    split = split_for(count)
    splits = triton.cdiv(min(keys, length), split)
    floats = torch.empty(0, dtype=torch.float32, device=q.device)
    partial = floats.new_empty(count * heads, splits, d)
    top, total = floats.new_empty(2, count * heads, splits)
    tiles = triton.cdiv(count * (heads // kv_heads), PACK)
    step, stages = (KEYS, STAGES) if kv.itemsize > 1 else (NARROW_KEYS, NARROW_STAGES)
    _attend[(tiles, splits, kv_heads)](
        q, kv, at, partial, top, total, length, splits,
        H=heads, HKV=kv_heads, D=d, SPLIT=split, PACK=PACK, KEYS=step, STAGES=stages, num_warps=8,
        **FOLLOWING,
    )  # fmt: skip
    y = torch.empty_like(q)
    _combine[(count, heads)](
        partial, top, total, at, rows, rows.stride(0), y, splits,
        H=heads, D=d, SPLIT=split, num_warps=2, **FOLLOWING,
    )  # fmt: skip
    return y
