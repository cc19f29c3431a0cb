"""The products of a mixture of experts, of few rows and of blocks.

Reference: `flashrt.engine.ffn`. Experts are the left operand of the matrix unit and the rows that
chose them its columns, as in `linear`: a fixed number at a time, dead ones zero. A program reads
one tile of one expert for such a group of rows, so weights are read once for all rows of a group,
and a row's bits do not depend on who is in its group. Plain or packed, they are read as
`expertweights` says.
"""

import attrs
import torch
import triton
import triton.language as tl
from torch import Tensor

from flashrt.engine import forms
from flashrt.engine.kernels.chain import FOLLOWING, let_follow, wait
from flashrt.engine.kernels.expertweights import Stack, check_rows, expert_sums, reading
from flashrt.engine.kernels.norm import HalfNorm
from flashrt.engine.kernels.plain import COLUMNS, ROWS_MAX, divided, gated
from flashrt.engine.kernels.routing import Routing, choose, score_block, score_rows, sort
from flashrt.engine.weights import MoeWeights

BLOCK = tl.constexpr(forms.BLOCK)

BLOCK_COLUMNS = 64
"""Rows of one group in a block, whatever its size."""


@triton.jit
def _group_of_rows(
    CHOSEN, rows, SLOTS: tl.constexpr, COLUMNS: tl.constexpr, ROWS: tl.constexpr,
    PADDED_SLOTS: tl.constexpr,
):  # fmt: skip
    """A program per pair: its expert, and the pairs of its group, -1 for a dead column.

    The first pair's program of a group computes all of it; the others get no expert.
    """
    pair = tl.program_id(0)
    expert = tl.load(CHOSEN + pair)
    c = tl.arange(0, COLUMNS)
    if ROWS == 1:
        pairs = tl.where(c == 0, pair, -1)
    else:
        m = tl.arange(0, ROWS)
        s = tl.arange(0, PADDED_SLOTS)
        live = (m < rows)[:, None] & (s < SLOTS)[None, :]
        chosen = tl.load(CHOSEN + m[:, None] * SLOTS + s[None, :], mask=live, other=-1)
        slot = tl.max(tl.where(chosen == expert, s[None, :], -1), 1)
        chose = (slot >= 0).to(tl.int32)
        before = tl.sum(tl.where(m < pair // SLOTS, chose, 0), 0)
        place = tl.cumsum(chose, 0) - 1 - before
        here = (place[:, None] == c[None, :]) & (slot >= 0)[:, None]
        pairs = tl.max(tl.where(here, (m * SLOTS + slot)[:, None], -1), 0)
        expert = tl.where(before % COLUMNS == 0, expert, -1)
    return expert, pairs


@triton.jit
def _group_of_block(
    PAIRS, FIRST, COLUMNS: tl.constexpr, EXPERTS: tl.constexpr, PADDED: tl.constexpr
):  # fmt: skip
    """The same of sorted pairs: each expert has as many programs as its pairs fill groups."""
    number = tl.program_id(0)
    e = tl.arange(0, PADDED)
    c = tl.arange(0, COLUMNS)
    last = tl.load(FIRST + EXPERTS + 1)
    first = tl.load(FIRST + e, mask=e <= EXPERTS, other=last)
    after = tl.load(FIRST + e + 1, mask=e <= EXPERTS, other=last)
    groups = (after - first + COLUMNS - 1) // COLUMNS
    expert = tl.sum((tl.cumsum(groups, 0) <= number).to(tl.int32), 0)
    number -= tl.sum(tl.where(e < expert, groups, 0), 0)
    own = e == expert
    at = tl.sum(tl.where(own, first, 0), 0) + number * COLUMNS + c
    pairs = tl.load(PAIRS + at, mask=at < tl.sum(tl.where(own, after, 0), 0), other=-1)
    return tl.where(expert <= EXPERTS, expert, -1), pairs


@triton.jit
def _group(
    CHOSEN, PAIRS, FIRST, rows, SORTED: tl.constexpr, EXPERTS: tl.constexpr, SLOTS: tl.constexpr,
    COLUMNS: tl.constexpr, PADDED: tl.constexpr, PADDED_SLOTS: tl.constexpr,
):  # fmt: skip
    """An expert, or -1 where there is nothing to do, and the pairs [COLUMNS] that it is for."""
    if SORTED:
        expert, pairs = _group_of_block(PAIRS, FIRST, COLUMNS, EXPERTS, PADDED)
    else:
        expert, pairs = _group_of_rows(CHOSEN, rows, SLOTS, COLUMNS, PADDED, PADDED_SLOTS)
    return expert, pairs


@triton.jit(do_not_specialize=["rows"])
def _gate_up(
    X, OWN, SHARED, GATED, SQUARES, CHOSEN, PAIRS, FIRST, rows, K, INNER, SHARED_INNER, WIDTH,
    eps, SORTED: tl.constexpr, EXPERTS: tl.constexpr, SLOTS: tl.constexpr, COLUMNS: tl.constexpr,
    PADDED: tl.constexpr, PADDED_SLOTS: tl.constexpr, BLOCKS: tl.constexpr,
    PADDED_BLOCKS: tl.constexpr, READ: tl.constexpr, SHARED_READ: tl.constexpr,
    ALIKE: tl.constexpr, TILE: tl.constexpr, PRECISION: tl.constexpr, ONCE: tl.constexpr,
):  # fmt: skip
    """GATED[pair, n] = silu(gate) * up of one expert; the tile's first half are gates."""
    wait()
    expert, pairs = _group(
        CHOSEN, PAIRS, FIRST, rows, SORTED, EXPERTS, SLOTS, COLUMNS, PADDED, PADDED_SLOTS
    )
    inner = tl.where(expert == EXPERTS, SHARED_INNER, INNER)
    HALF: tl.constexpr = TILE // 2
    first = tl.program_id(1) * HALF
    if (expert >= 0) & (first < inner):
        live = pairs >= 0
        row = tl.where(live, pairs // SLOTS, rows)
        i = tl.arange(0, TILE)
        n = tl.minimum(first + i % HALF, inner - 1) + tl.where(i < HALF, 0, inner)
        # Ups have blocks of their own.
        skipped = tl.where(i < HALF, 0, tl.cdiv(inner, BLOCK) * BLOCK - inner)
        total = expert_sums(
            OWN, SHARED, expert, INNER, n, skipped, X + row.to(tl.int64) * K, live, K, K, EXPERTS,
            2, READ, SHARED_READ, ALIKE, TILE, COLUMNS, PRECISION, ONCE,
        )  # fmt: skip
        let_follow()
        total = divided(total, SQUARES, row, rows, K, eps, BLOCKS, PADDED_BLOCKS)
        y = gated(total, TILE, COLUMNS)
        out = first + tl.arange(0, HALF)
        at = pairs[None, :].to(tl.int64) * WIDTH + out[:, None]
        mask = live[None, :] & (out < inner)[:, None]
        tl.store(GATED + at, y.to(GATED.dtype.element_ty), mask=mask)


@triton.jit(do_not_specialize=["rows"])
def _down(
    GATED, OWN, SHARED, PARTS, SHARES, CHOSEN, PAIRS, FIRST, rows, N, INNER, SHARED_INNER,
    WIDTH, SORTED: tl.constexpr, EXPERTS: tl.constexpr, SLOTS: tl.constexpr,
    COLUMNS: tl.constexpr, PADDED: tl.constexpr, PADDED_SLOTS: tl.constexpr,
    READ: tl.constexpr, SHARED_READ: tl.constexpr, ALIKE: tl.constexpr, TILE: tl.constexpr,
    PRECISION: tl.constexpr, ONCE: tl.constexpr,
):  # fmt: skip
    """PARTS[slot, m, n]: what one expert answers, times its share."""
    wait()
    expert, pairs = _group(
        CHOSEN, PAIRS, FIRST, rows, SORTED, EXPERTS, SLOTS, COLUMNS, PADDED, PADDED_SLOTS
    )
    if expert >= 0:
        live = pairs >= 0
        out = tl.program_id(1) * TILE + tl.arange(0, TILE)
        columns = GATED + tl.where(live, pairs, 0).to(tl.int64) * WIDTH
        total = expert_sums(
            OWN, SHARED, expert, N, tl.minimum(out, N - 1), 0, columns, live, INNER, SHARED_INNER,
            EXPERTS, 1, READ, SHARED_READ, ALIKE, TILE, COLUMNS, PRECISION, ONCE,
        )  # fmt: skip
        let_follow()
        total *= tl.load(SHARES + pairs, mask=live, other=0.0)[None, :]
        at = (pairs % SLOTS * rows + pairs // SLOTS)[None, :].to(tl.int64) * N + out[:, None]
        mask = live[None, :] & (out < N)[:, None]
        tl.store(PARTS + at, total.to(PARTS.dtype.element_ty), mask=mask)


@attrs.frozen(eq=False)
class _Groups:
    """How pairs find their experts: arguments that both products share, and the programs."""

    tensors: tuple[Tensor, Tensor, Tensor]
    """What is chosen; and sorted pairs and where each expert's begin, which few rows do without."""
    count: int
    """Programs along the first axis: at least as many as groups."""
    options: dict[str, int | bool]


def _groups_of_rows(chosen: Tensor, experts: int) -> _Groups:
    rows, slots = chosen.shape
    options = {
        "SORTED": False, "EXPERTS": experts, "SLOTS": slots, "COLUMNS": COLUMNS,
        "PADDED": triton.next_power_of_2(rows), "PADDED_SLOTS": triton.next_power_of_2(slots),
        "ONCE": rows <= COLUMNS,
    }  # fmt: skip
    return _Groups((chosen, chosen, chosen), rows * slots, options)


def _groups_of_block(chosen: Tensor, experts: int) -> _Groups:
    slots, order = chosen.shape[1], sort(chosen, experts)
    pairs = chosen.numel()
    options = {
        "SORTED": True, "EXPERTS": experts, "SLOTS": slots, "COLUMNS": BLOCK_COLUMNS,
        "PADDED": triton.next_power_of_2(experts + 1), "PADDED_SLOTS": 1, "ONCE": False,
    }  # fmt: skip
    # Whole groups, and of each expert one that is not full.
    count = pairs // BLOCK_COLUMNS + min(pairs, experts + 1)
    return _Groups((chosen, order.pairs, order.first), count, options)


def _answer(
    x: Tensor, half: HalfNorm | None, weights: MoeWeights, routing: Routing, groups: _Groups,
    parts: Tensor,
) -> None:  # fmt: skip
    """Both products of every pair; fills the living rows of parts [slots, M, h]."""
    rows, h = x.shape
    shared, block = weights.shared, bool(groups.options["SORTED"])
    downs, shared_down = Stack.of(weights.down, h), Stack.of(shared.down, h)
    inner, shared_inner = downs.columns, shared_down.columns
    ups, shared_up = Stack.of(weights.gate_up, inner), Stack.of(shared.gate_up, shared_inner)
    check_rows(x, downs, shared_down, ups, shared_up)
    width = max(inner, shared_inner)
    middle = x.new_empty(routing.chosen.numel(), width)
    blocks = half.squares.shape[1] if half else 0

    options = reading(ups, shared_up, x.element_size(), block=block, gated=True)
    _gate_up[(groups.count, triton.cdiv(width, options["TILE"] // 2))](
        x, ups.argument, shared_up.argument, middle, half.squares if half else x, *groups.tensors,
        rows, h, inner, shared_inner, width, half.eps if half else 0.0,
        BLOCKS=blocks, PADDED_BLOCKS=triton.next_power_of_2(blocks) if half else 0,
        **groups.options, **options, **FOLLOWING,
    )  # fmt: skip
    options = reading(downs, shared_down, x.element_size(), block=block, gated=False)
    _down[(groups.count, triton.cdiv(h, options["TILE"]))](
        middle, downs.argument, shared_down.argument, parts, routing.shares, *groups.tensors,
        rows, h, inner, shared_inner, width, **groups.options, **options, **FOLLOWING,
    )  # fmt: skip


def rows_mixture(x: HalfNorm, weights: MoeWeights, at: Tensor) -> Tensor:
    """-> parts [slots, M <= 64, h] float32 of the at[2] living rows, zeros of the others.

    To be added in order: the experts of a row from the lowest up, then the shared one. A row's
    bits are its own.
    """
    rows, h = x.rows.shape
    if not 0 < rows <= ROWS_MAX:
        raise ValueError(f"{rows} rows; 1 to {ROWS_MAX} fit")
    slots, experts = weights.experts_per_row + 1, len(weights.gate_up)
    parts = x.rows.new_empty(slots, rows, h, dtype=torch.float32)
    scores = score_rows(x, weights.router)
    routing = choose(scores, at, weights.experts_per_row, x.rows.dtype, parts)
    _answer(x.rows, x, weights, routing, _groups_of_rows(routing.chosen, experts), parts)
    return parts


def block_mixture(x: Tensor, weights: MoeWeights, at: Tensor) -> Tensor:
    """The same of a block x [T, h] bfloat16 -> [slots, T, h] bfloat16, each part rounded once.

    Bits of a row depend neither on T nor on rows that do not live.
    """
    slots, experts = weights.experts_per_row + 1, len(weights.gate_up)
    parts = x.new_empty(slots, *x.shape)
    scores = score_block(x, weights.router)
    routing = choose(scores, at, weights.experts_per_row, x.dtype, parts)
    _answer(x, None, weights, routing, _groups_of_block(routing.chosen, experts), parts)
    return parts
