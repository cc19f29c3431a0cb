"""Which experts serve a row. References: `flashrt.engine.ffn.route` and its sums.

The shared expert counts as one more behind the E routed ones, and every row chooses it: so one
list of pairs (row, slot), numbered row * slots + slot, says all there is to compute.
"""

import attrs
import torch
import triton
import triton.language as tl
from torch import Tensor

from flashrt.engine.kernels.chain import FOLLOWING, follow, let_follow, wait
from flashrt.engine.kernels.norm import HalfNorm

ROUTER_EXPERTS, ROUTER_ROWS = 2, 4
"""Of few rows, in one program. All of a row of the router is summed at once."""

BLOCK_EXPERTS, BLOCK_ROWS, BLOCK_DEPTH, BLOCK_STAGES = 64, 64, 64, 4
"""Of a block, in one program; and the steps along a row of the router."""

SORT_STEP = 2048
"""Pairs that are looked at together."""

ZEROED = 1024
"""Numbers of a row that does not live, which are cleared together."""

DTYPES = {torch.bfloat16: tl.bfloat16, torch.float32: tl.float32}
"""What Triton calls them."""


@triton.jit(do_not_specialize=["rows"])
def _score_rows(
    X, ROUTER, SCORES, SQUARES, rows, N, K, eps, BLOCKS: tl.constexpr, PADDED: tl.constexpr,
    EXPERTS: tl.constexpr, ROWS: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    """SCORES[m, n] of a few rows m, each by itself, with router rows that are read once."""
    n = tl.program_id(0) * EXPERTS + tl.arange(0, EXPERTS)
    k = tl.arange(0, WIDTH)
    inside = k < K
    # Constants, so they may come before the wait.
    w = tl.load(ROUTER + n[:, None] * K + k[None, :], mask=(n < N)[:, None] & inside[None, :],
                other=0.0)  # fmt: skip
    follow()
    first = tl.program_id(1) * ROWS
    for m in range(first, tl.minimum(first + ROWS, rows)):
        x = tl.load(X + m * K + k, mask=inside, other=0.0).to(tl.float32)
        total = tl.sum(w * x[None, :], 1)
        if BLOCKS > 0:
            b = tl.arange(0, PADDED)
            squares = tl.load(SQUARES + m * BLOCKS + b, mask=b < BLOCKS, other=0.0)
            total = total * tl.rsqrt(tl.sum(squares, 0) / K + eps)
        tl.store(SCORES + m * N + n, total, mask=n < N)


def score_rows(x: Tensor | HalfNorm, router: Tensor) -> Tensor:
    """x [M, h] @ router [N, h]^T -> [M, N] float32; a row's bits are its own."""
    half = x if isinstance(x, HalfNorm) else None
    rows = half.rows if half else x
    assert isinstance(rows, Tensor)
    (m, k), n = rows.shape, len(router)
    width, blocks = triton.next_power_of_2(k), half.squares.shape[1] if half else 0
    scores = torch.empty(m, n, dtype=torch.float32, device=rows.device)
    _score_rows[(triton.cdiv(n, ROUTER_EXPERTS), triton.cdiv(m, ROUTER_ROWS))](
        rows, router, scores, half.squares if half else rows, m, n, k, half.eps if half else 0.0,
        BLOCKS=blocks, PADDED=triton.next_power_of_2(blocks) if half else 0,
        EXPERTS=ROUTER_EXPERTS, ROWS=ROUTER_ROWS, WIDTH=width,
        num_warps=max(1, min(8, width // 512)), **FOLLOWING,
    )  # fmt: skip
    return scores


@triton.jit(do_not_specialize=["rows"])
def _score_block(
    X, ROUTER, SCORES, rows, N, K, EXPERTS: tl.constexpr, ROWS: tl.constexpr, DEPTH: tl.constexpr,
    STAGES: tl.constexpr,
):  # fmt: skip
    """Float32 weights times bfloat16 rows: a weight is the sum of three bfloat16 numbers, and
    their products with a row's numbers are exact."""
    wait()
    n = tl.program_id(0) * EXPERTS + tl.arange(0, EXPERTS)
    m = tl.program_id(1) * ROWS + tl.arange(0, ROWS)
    k = tl.arange(0, DEPTH)
    weights = ROUTER + n[:, None] * K + k[None, :]
    columns = X + m[None, :].to(tl.int64) * K + k[:, None]
    total = tl.zeros([EXPERTS, ROWS], tl.float32)
    for at in tl.range(0, K, DEPTH, num_stages=STAGES):
        inside = k + at < K
        w = tl.load(weights + at, mask=(n < N)[:, None] & inside[None, :], other=0.0)
        x = tl.load(columns + at, mask=(m < rows)[None, :] & inside[:, None], other=0.0)
        high = w.to(tl.bfloat16)
        rest = w - high.to(tl.float32)
        middle = rest.to(tl.bfloat16)
        low = (rest - middle.to(tl.float32)).to(tl.bfloat16)
        total = tl.dot(low, x, total)
        total = tl.dot(middle, x, total)
        total = tl.dot(high, x, total)
    let_follow()
    live = (n < N)[:, None] & (m < rows)[None, :]
    tl.store(SCORES + m[None, :] * N + n[:, None], total, mask=live)


def score_block(x: Tensor, router: Tensor) -> Tensor:
    """x [T, h] bfloat16 @ router [N, h]^T float32 -> [T, N] float32."""
    (m, k), n = x.shape, len(router)
    scores = torch.empty(m, n, dtype=torch.float32, device=x.device)
    _score_block[(triton.cdiv(n, BLOCK_EXPERTS), triton.cdiv(m, BLOCK_ROWS))](
        x, router, scores, m, n, k,
        EXPERTS=BLOCK_EXPERTS, ROWS=BLOCK_ROWS, DEPTH=BLOCK_DEPTH, STAGES=BLOCK_STAGES,
        num_warps=4, **FOLLOWING,
    )  # fmt: skip
    return scores


@triton.jit
def _choose(
    SCORES, AT, CHOSEN, SHARES, PARTS, H, EXPERTS: tl.constexpr, PADDED: tl.constexpr,
    K: tl.constexpr, DTYPE: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """One row a program; see `choose`."""
    follow()
    m = tl.program_id(0)
    e = tl.arange(0, PADDED)
    slots = m * (K + 1)
    if m < tl.load(AT + 2):
        score = tl.load(SCORES + m * (EXPERTS + 1) + e, mask=e < EXPERTS, other=-float("inf"))
        likely = tl.exp(score - tl.max(score, 0))
        likely = likely / tl.sum(likely, 0)
        # Not a number counts as nothing here: whatever a row holds, its ids are those of experts.
        size = tl.where(likely >= 0, likely, 0.0).to(tl.int32, bitcast=True)
        # Larger is likelier, and of equals the lower index: no two keys are equal.
        key = tl.where(e < EXPERTS, (size.to(tl.int64) << 32) | (PADDED - e), -1)
        chosen = e < 0
        for _ in tl.static_range(K):
            best = key == tl.max(key, 0)
            chosen = chosen | best
            key = tl.where(best, -1, key)
        share = likely / tl.sum(tl.where(chosen, likely, 0.0), 0)
        slot = tl.cumsum(chosen.to(tl.int32), 0) - 1
        tl.store(CHOSEN + slots + slot, e, mask=chosen)
        tl.store(SHARES + slots + slot, share.to(DTYPE).to(tl.float32), mask=chosen)
        gate = tl.load(SCORES + m * (EXPERTS + 1) + EXPERTS)
        tl.store(CHOSEN + slots + K, EXPERTS)
        tl.store(SHARES + slots + K, tl.sigmoid(gate))
    else:
        n = tl.arange(0, BLOCK)
        for number in range(K + 1):
            tl.store(CHOSEN + slots + number, -1)
            part = PARTS + (number * tl.num_programs(0) + m).to(tl.int64) * H
            for at in range(0, H, BLOCK):
                tl.store(part + at + n, tl.zeros([BLOCK], PARTS.dtype.element_ty), mask=at + n < H)


@attrs.frozen(eq=False)
class Routing:
    """What serves each row, and with which share."""

    chosen: Tensor
    """[M, slots] int32: a row's experts from the lowest up, then E, the shared one; -1 of a row
    that does not live."""
    shares: Tensor
    """[M, slots] float32: what the routed ones count, which adds up to 1, and the gate of the
    shared one; nothing of a row that does not live."""


def choose(scores: Tensor, at: Tensor, per_row: int, dtype: torch.dtype, parts: Tensor) -> Routing:
    """The `per_row` likeliest experts of the at[2] rows that live, of equals the lowest.

    scores [M, E + 1] float32, last the shared expert's gate; shares are rounded to `dtype`. The
    rows of parts [slots, M, h] that do not live become zeros; the others are left as they are.
    """
    rows, experts = len(scores), scores.shape[1] - 1
    chosen = torch.empty(rows, per_row + 1, dtype=torch.int32, device=scores.device)
    shares = torch.empty(rows, per_row + 1, dtype=torch.float32, device=scores.device)
    _choose[(rows,)](
        scores, at, chosen, shares, parts, parts.shape[2],
        EXPERTS=experts, PADDED=triton.next_power_of_2(experts), K=per_row, DTYPE=DTYPES[dtype],
        BLOCK=ZEROED, num_warps=1, **FOLLOWING,
    )  # fmt: skip
    return Routing(chosen, shares)


@triton.jit(do_not_specialize=["count"])
def _sort(CHOSEN, PAIRS, FIRST, count, STEP: tl.constexpr):
    """One expert a program: its pairs in their order, behind those of all experts below it."""
    wait()
    expert = tl.program_id(0)
    i = tl.arange(0, STEP)
    below, own = tl.zeros([STEP], tl.int32), tl.zeros([STEP], tl.int32)
    for at in range(0, count, STEP):
        chosen = tl.load(CHOSEN + at + i, mask=at + i < count, other=-1)
        below += ((chosen >= 0) & (chosen < expert)).to(tl.int32)
        own += (chosen == expert).to(tl.int32)
    let_follow()
    first = tl.sum(below, 0)
    tl.store(FIRST + expert, first)
    if expert == tl.num_programs(0) - 1:
        tl.store(FIRST + expert + 1, first + tl.sum(own, 0))
    for at in range(0, count, STEP):
        here = tl.load(CHOSEN + at + i, mask=at + i < count, other=-1) == expert
        place = first + tl.cumsum(here.to(tl.int32), 0) - 1
        tl.store(PAIRS + place, at + i, mask=here)
        first += tl.sum(here.to(tl.int32), 0)


@attrs.frozen(eq=False)
class Sorted:
    """Pairs by expert."""

    pairs: Tensor
    """[M * slots] int32: those of one expert together, in their order."""
    first: Tensor
    """[E + 2] int32: where an expert's begin; at last, where they all end."""


def sort(chosen: Tensor, experts: int) -> Sorted:
    """The pairs of chosen [M, slots] in the order of their experts, of which the last is `experts`.

    Pairs with no expert are left out.
    """
    pairs = torch.empty(chosen.numel(), dtype=torch.int32, device=chosen.device)
    first = torch.empty(experts + 2, dtype=torch.int32, device=chosen.device)
    _sort[(experts + 1,)](
        chosen, pairs, first, chosen.numel(), STEP=SORT_STEP, num_warps=8, **FOLLOWING
    )
    return Sorted(pairs, first)
