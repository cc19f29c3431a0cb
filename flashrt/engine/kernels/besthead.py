"""The best id of each row, exactly, from a head that is mostly read in 8 bits.

What `narrowhead` says of an id is off by a bound at most, so an id whose score and bound together
stay below what another one surely reaches is not the best. The few that are left, of any of the
rows, are multiplied by the head itself, with the steps of `plain` and so with its bits. Where too
many are left, or a row is not finite, the same launch goes over all of the head: the host has no
say in it, and need not wait.
"""

import attrs
import torch
import triton
import triton.language as tl
from torch import Tensor

from flashrt.engine.kernels.chain import FOLLOWING, follow, let_follow, wait
from flashrt.engine.kernels.narrowhead import (
    BEST,
    LOWER,
    NONE,
    NarrowHead,
    Scores,
    bounds,
    columns_of,
    ordered,
    unordered,
)
from flashrt.engine.kernels.plain import COLUMNS, ROWS_MAX, groups_of, plain_sums
from flashrt.engine.kernels.tiles import BEST_STAGES, tile_for

CANDIDATES = 16384
"""Ids that may be left of all rows together."""

_ID_MAX = tl.constexpr(2**31 - 1)


@triton.jit(do_not_specialize=["rows", "limit", "most"])
def _select(
    A, ERROR, LENGTH, FACTS, MARKS, IDS, rows, limit, most, COLUMNS: tl.constexpr,
    BLOCK: tl.constexpr,
):  # fmt: skip
    """Count the ids that may be the best of a row, and list the first `most` that come."""
    wait()
    n = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    m = tl.arange(0, COLUMNS)
    live = (n[:, None] < limit) & (m[None, :] < rows)
    a = tl.load(A + m[None, :].to(tl.int64) * limit + n[:, None], mask=live, other=0.0)
    lower = unordered(tl.load(MARKS + LOWER + m, mask=m < rows, other=0).to(tl.int32))
    highest = a + bounds(a, ERROR, LENGTH, FACTS, n, m, rows, limit)
    let_follow()
    # Not `>=`: what cannot be compared is kept.
    below = highest < lower[None, :]
    kept = tl.max((live & ~below).to(tl.int32), 1)
    count = tl.sum(kept, 0)
    if count > 0:
        first = tl.atomic_add(MARKS, count.to(tl.int64), sem="relaxed")
        at = first + tl.cumsum(kept, 0) - 1
        tl.store(IDS + at, n, mask=(kept > 0) & (at < most))


@triton.jit
def _raise(MARKS, total, n, m, live, rows):
    """Let scores [n, m] and their ids into the best pairs: the higher, of equals the lower id."""
    pair = (ordered(total).to(tl.int64) << 32) | (n ^ _ID_MAX)[:, None].to(tl.int64)
    pair = tl.where(live[:, None], pair, NONE)
    tl.atomic_max(MARKS + BEST + m, tl.max(pair, 0), mask=m < rows, sem="relaxed")


@triton.jit(do_not_specialize=["rows", "limit", "most"])
def _best(
    X, W, MARKS, IDS, rows, limit, most, K, COLUMNS: tl.constexpr, GROUPS: tl.constexpr,
    TILE: tl.constexpr, DEPTH: tl.constexpr, STAGES: tl.constexpr, EVEN: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    """The best pair of each row, of the listed ids or of all below the limit."""
    wait()
    listed = tl.load(MARKS)
    every = listed > most
    count = tl.where(every, limit, listed).to(tl.int32)
    programs = tl.num_programs(0)
    # Few ids are spread over all programs.
    width = tl.maximum(tl.minimum(tl.cdiv(count, programs), TILE), 1)
    i = tl.arange(0, TILE)
    m = tl.arange(0, COLUMNS)
    for start in tl.range(tl.program_id(0) * width, count, programs * width):
        live = (i < width) & (start + i < count)
        n = tl.load(IDS + start + i, mask=live & (not every), other=0)
        n = tl.where(live & every, start + i, n)
        weights = W + n[:, None].to(tl.int64) * K + tl.arange(0, DEPTH)[None, :]
        sum0, sum1, sum2, sum3 = plain_sums(
            X, weights, live, rows, K, 0, tl.cdiv(K, DEPTH),
            COLUMNS, GROUPS, TILE, DEPTH, STAGES, EVEN, True, PRECISION,
        )  # fmt: skip
        _raise(MARKS, sum0, n, m, live, rows)
        if GROUPS > 1:
            _raise(MARKS, sum1, n, m + COLUMNS, live, rows)
        if GROUPS > 2:
            _raise(MARKS, sum2, n, m + 2 * COLUMNS, live, rows)
            _raise(MARKS, sum3, n, m + 3 * COLUMNS, live, rows)


@triton.jit(do_not_specialize=["rows"])
def _tell(MARKS, VALUES, IDS, rows, ROWS: tl.constexpr):
    """The best pairs, taken apart."""
    follow()
    m = tl.arange(0, ROWS)
    pair = tl.load(MARKS + BEST + m, mask=m < rows, other=0)
    tl.store(VALUES + m, unordered((pair >> 32).to(tl.int32)), mask=m < rows)
    tl.store(IDS + m, (pair & _ID_MAX) ^ _ID_MAX, mask=m < rows)


@attrs.frozen(eq=False)
class BestHead:
    """A plain head [V, h] and its copy in 8 bits."""

    head: Tensor
    narrow: NarrowHead
    programs: int
    """That multiply by the head itself."""
    candidates: int = CANDIDATES

    @classmethod
    def of(cls, head: Tensor, narrow: NarrowHead) -> "BestHead":
        """A program for each processor of the device."""
        device = torch.cuda.get_device_properties(head.device)
        return cls(head, narrow, device.multi_processor_count)

    def best(self, hidden: Tensor, limit: int) -> tuple[Tensor, Tensor]:
        """Of hidden rows [M <= 64, h] the best score [M] float32 and its id [M] int64, below
        `limit`: what `head_linear(...)[:, :limit].max(-1)` gives, bit for bit.

        The score of a row that is not finite is not either.
        """
        scores, (rows, k) = self.narrow.scores(hidden, limit), hidden.shape
        ids = self._left(scores)
        tile = tile_for(len(self.head), k, hidden.element_size())
        _best[(self.programs,)](
            hidden, self.head, scores.marks, ids, rows, limit, self.candidates, k,
            COLUMNS=COLUMNS, TILE=tile.rows, DEPTH=tile.depth, EVEN=k % tile.depth == 0,
            PRECISION="ieee", num_warps=tile.warps,
            **groups_of(rows, tile) | {"STAGES": BEST_STAGES, "num_stages": BEST_STAGES},
            **FOLLOWING,
        )  # fmt: skip
        values = hidden.new_empty(rows, dtype=torch.float32)
        chosen = hidden.new_empty(rows, dtype=torch.int64)
        _tell[(1,)](scores.marks, values, chosen, rows, ROWS=ROWS_MAX, num_warps=2, **FOLLOWING)
        return values, chosen

    def _left(self, scores: Scores) -> Tensor:
        """[candidates] int32: the ids that may be the best, as many as the marks count."""
        (rows, limit), copy = scores.values.shape, self.narrow.copy
        ids = scores.values.new_empty(self.candidates, dtype=torch.int32)
        width = columns_of(rows)
        block = max(128, 2048 // width)
        _select[(triton.cdiv(limit, block),)](
            scores.values, copy.error, copy.length, scores.facts, scores.marks, ids, rows, limit,
            self.candidates, COLUMNS=width, BLOCK=block, num_warps=4, **FOLLOWING,
        )  # fmt: skip
        return ids
