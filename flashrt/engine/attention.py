"""Causal attention over the static K and V: few rows against any length, and blocks.

Rows are computed one by one over splits of a fixed size that begin at position 0. A row's bits
depend on its position alone: splits are folded in index order, and one that is wholly dead would
add exact zeros.
"""

import torch
from torch import Tensor
from torch.nn import functional

SPLIT = 1024
"""Keys per partial result. Part of what fixes the bits of a row."""

BLOCK_ROWS = 256
"""Query rows of a block that go through one product, or fewer where its mask would pass this:"""

MASK_MAX = 1 << 26


def attend_rows(q: Tensor, kv: Tensor, position: int, count: int) -> Tensor:
    """Rows position .. position + count - 1 against all keys up to each. -> [T, H, d] float32.

    q [T >= count, H, d]; kv [2, Hkv, rows, d] holds the new rows already. Rows from `count` on
    are zero.
    """
    out = torch.zeros(q.shape, dtype=torch.float32, device=q.device)
    for r in range(count):
        out[r] = attend_row(q[r].float(), kv, position + r + 1)
    return out


def attend_row(q: Tensor, kv: Tensor, length: int, splits: int | None = None) -> Tensor:
    """One query q [H, d] float32 against keys [0, length) -> [H, d].

    `splits` beyond the length change nothing: they add exact zeros.
    """
    keys, values = kv
    kv_heads, _, d = keys.shape
    heads = q.view(kv_heads, -1, d) * d**-0.5
    top = heads.new_full((*heads.shape[:2], 1), -torch.inf)
    total = torch.zeros_like(top)
    out = torch.zeros_like(heads)
    for s in range(splits or -(-length // SPLIT)):
        at = slice(s * SPLIT, (s + 1) * SPLIT)
        k, v = keys[:, at].float(), values[:, at].float()
        scores = torch.bmm(heads, k.transpose(1, 2))  # [Hkv, g, SPLIT]
        if at.stop > length:
            # Select, never multiply: a stale row may hold anything.
            live = torch.arange(at.start, at.stop, device=q.device) < length
            scores = torch.where(live, scores, -torch.inf)
            v = torch.where(live[:, None], v, 0)
        higher = torch.maximum(top, scores.amax(-1, keepdim=True))
        kept, weights = torch.exp(top - higher), torch.exp(scores - higher)
        total = total * kept + weights.sum(-1, keepdim=True)
        out = out * kept + torch.bmm(weights, v)
        top = higher
    return (out / total).reshape(q.shape)


def attend_block(q: Tensor, kv: Tensor, position: int) -> Tensor:
    """A block of rows from `position` on against [0, position + T). q [T, H, d] -> [T, H, d].

    Query heads that share a key head become rows of one product, so no key is copied. K and V of
    another dtype than q's are converted, of one key head at a time.
    """
    if kv.dtype != q.dtype:
        return _head_by_head(q, kv, position)
    keys, values = kv
    kv_heads, _, d = keys.shape
    rows, heads, _ = q.shape
    shared = q.view(rows, kv_heads, -1, d).permute(1, 2, 0, 3)  # [Hkv, g, T, d]
    out = torch.empty_like(q)
    width = heads // kv_heads * (position + rows)
    step = max(1, min(BLOCK_ROWS, MASK_MAX // width))
    for lo in range(0, rows, step):
        hi = min(rows, lo + step)
        end = position + hi
        part = shared[:, :, lo:hi].reshape(1, kv_heads, -1, d)
        mask = torch.ones(hi - lo, end, dtype=torch.bool, device=q.device).tril(position + lo)
        mask = mask.repeat(heads // kv_heads, 1)
        got = functional.scaled_dot_product_attention(
            part, keys[None, :, :end], values[None, :, :end], attn_mask=mask
        )
        out[lo:hi] = got.reshape(heads, hi - lo, d).transpose(0, 1)
    return out


def _head_by_head(q: Tensor, kv: Tensor, position: int) -> Tensor:
    """The same, for what is kept in another dtype. Converted, a window of all heads would be larger
    than the live state; so one head's is gone before the next one's is made."""
    end, out = position + len(q), torch.empty_like(q)
    each = q.shape[1] // kv.shape[1]
    for head in range(kv.shape[1]):
        mine = slice(head * each, (head + 1) * each)
        out[:, mine] = attend_block(
            q[:, mine].contiguous(), kv[:, head : head + 1, :end].to(q.dtype), position
        )
    return out
