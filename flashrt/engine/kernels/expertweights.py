"""How the weights of one expert are read, plain or packed, and multiplied with rows that chose it.

References: `flashrt.engine.forms`, `flashrt.engine.matrix.Experts`. The matrices of all experts lie
in one form, one below the other at equal distances. The shared expert may have another form than
the routed ones: then a program asks which of the two it reads.
"""

from typing import Any

import attrs
import torch
import triton
import triton.language as tl
from torch import Tensor

from flashrt.engine.forms import BLOCK, Fp8Blocks
from flashrt.engine.kernels.packed import (
    FP8_BLOCKS,
    INT4,
    Read,
    first_scale,
    ordered,
    scales,
    step_weights,
)
from flashrt.engine.kernels.tiles import Tile, expert_tile, packed_expert_tile
from flashrt.engine.matrix import Experts, Matrix, sole_part

PLAIN = tl.constexpr(-1)
"""Beside the forms of `packed`."""


@triton.jit
def _plain_product(
    weights, columns, live, K, TILE: tl.constexpr, COLUMNS: tl.constexpr, DEPTH: tl.constexpr,
    STAGES: tl.constexpr, EVEN: tl.constexpr, PRECISION: tl.constexpr, ONCE: tl.constexpr,
):  # fmt: skip
    """Sums over k of weights[:, k] * columns[k, :], both given by the places of their first k."""
    k = tl.arange(0, DEPTH)
    total = tl.zeros([TILE, COLUMNS], tl.float32)
    for at in tl.range(0, K, DEPTH, num_stages=STAGES):
        if EVEN:
            if ONCE:
                w = tl.load(weights + at, eviction_policy="evict_first")
            else:
                w = tl.load(weights + at)
            x = tl.load(columns + at, mask=live[None, :], other=0.0)
        else:
            inside = k + at < K
            w = tl.load(weights + at, mask=inside[None, :], other=0.0)
            x = tl.load(columns + at, mask=live[None, :] & inside[:, None], other=0.0)
        total = tl.dot(w, x, total, input_precision=PRECISION)
    return total


@triton.jit
def _packed_product(
    STACK, n, SKIPPED, columns, live, K, FORM: tl.constexpr, PAIRS: tl.constexpr,
    GROUP: tl.constexpr, UNIT: tl.constexpr, TILE: tl.constexpr, COLUMNS: tl.constexpr,
    DEPTH: tl.constexpr, STAGES: tl.constexpr, EVEN: tl.constexpr,
):  # fmt: skip
    """The same of packed rows n, in the order of columns in which they are unpacked."""
    WORDS: tl.constexpr = DEPTH // (2 * PAIRS)
    SCALE, ZERO, WORDS_K, SCALES_K = STACK[1], STACK[2], STACK[4], STACK[5]
    k = ordered(DEPTH, WORDS, PAIRS)
    weights = STACK[0] + n[:, None].to(tl.int64) * WORDS_K + tl.arange(0, WORDS)[None, :]
    total = tl.zeros([TILE, COLUMNS], tl.float32)
    behind = first_scale(SCALE, STACK[3], n, 0, K, SCALES_K, SKIPPED, FORM, GROUP,
                         TILE, DEPTH, UNIT, EVEN)  # fmt: skip
    for step in tl.range(0, tl.cdiv(K, DEPTH), num_stages=STAGES):
        at = step * DEPTH
        a = step_weights(weights, SCALE, ZERO, n, step, K, WORDS_K, SCALES_K, SKIPPED, FORM, PAIRS,
                         GROUP, UNIT, TILE, DEPTH, EVEN)  # fmt: skip
        factor = behind.to(tl.float32)[:, None]
        if (FORM == FP8_BLOCKS) | (FORM == INT4):
            # One step ahead, so that the sums do not wait for them.
            ahead = tl.minimum(at + DEPTH, K - 1)
            behind = scales(SCALE, n, ahead, K, SCALES_K, SKIPPED, FORM, GROUP,
                            DEPTH, UNIT, EVEN)  # fmt: skip
        inside = live[None, :]
        if not EVEN:
            inside = inside & ((k + at)[:, None] < K)
        x = tl.load(columns[None, :] + (k + at)[:, None], mask=inside, other=0.0)
        total += tl.dot(a, x) * factor
    return total


@triton.jit
def _sums(
    STACK, n, SKIPPED, columns, live, K, READ: tl.constexpr, TILE: tl.constexpr,
    COLUMNS: tl.constexpr, PRECISION: tl.constexpr, ONCE: tl.constexpr,
):  # fmt: skip
    """[TILE, COLUMNS]: rows n of one expert, which STACK begins with, times columns [COLUMNS]."""
    FORM: tl.constexpr = READ[0]
    if FORM == PLAIN:
        k = tl.arange(0, READ[4])
        total = _plain_product(
            STACK[0] + n[:, None].to(tl.int64) * K + k[None, :], columns[None, :] + k[:, None],
            live, K, TILE, COLUMNS, READ[4], READ[5], READ[6], PRECISION, ONCE,
        )  # fmt: skip
    else:
        total = _packed_product(
            STACK, n, SKIPPED, columns, live, K, FORM, READ[1], READ[2], READ[3], TILE, COLUMNS,
            READ[4], READ[5], READ[6],
        )  # fmt: skip
    return total


@triton.jit
def _from_expert(STACK, expert, N, MATRICES: tl.constexpr, READ: tl.constexpr):
    """STACK from this expert on, of MATRICES [N, K] each."""
    FORM: tl.constexpr = READ[0]
    row = expert.to(tl.int64) * (MATRICES * N)
    scale_row = row
    if FORM == FP8_BLOCKS:
        scale_row = expert.to(tl.int64) * (MATRICES * tl.cdiv(N, READ[2]))
    words_k, scales_k = STACK[4], STACK[5]
    return (STACK[0] + row * words_k, STACK[1] + scale_row * scales_k, STACK[2] + row * scales_k,
            STACK[3] + row, words_k, scales_k)  # fmt: skip


@triton.jit
def _one_of(first, ONE, OTHER):
    """ONE where `first`, else OTHER."""
    return (tl.where(first, ONE[0], OTHER[0]), tl.where(first, ONE[1], OTHER[1]),
            tl.where(first, ONE[2], OTHER[2]), tl.where(first, ONE[3], OTHER[3]),
            tl.where(first, ONE[4], OTHER[4]), tl.where(first, ONE[5], OTHER[5]))  # fmt: skip


@triton.jit
def expert_sums(
    OWN, SHARED, expert, N, n, SKIPPED, columns, live, K, SHARED_K, EXPERTS: tl.constexpr,
    MATRICES: tl.constexpr, READ: tl.constexpr, SHARED_READ: tl.constexpr, ALIKE: tl.constexpr,
    TILE: tl.constexpr, COLUMNS: tl.constexpr, PRECISION: tl.constexpr, ONCE: tl.constexpr,
):  # fmt: skip
    """[TILE, COLUMNS] float32: rows n of an expert's matrices times rows [COLUMNS] that begin at
    `columns`, of which some live. The shared expert is number EXPERTS.

    N: rows of one matrix of a routed expert. SKIPPED: rows that n lacks to whole blocks before it.
    """
    own = _from_expert(OWN, expert, N, MATRICES, READ)
    if ALIKE:
        shared = expert == EXPERTS
        k = tl.where(shared, SHARED_K, K)
        total = _sums(_one_of(shared, SHARED, own), n, SKIPPED, columns, live, k, READ,
                      TILE, COLUMNS, PRECISION, ONCE)  # fmt: skip
    elif expert == EXPERTS:
        total = _sums(SHARED, n, SKIPPED, columns, live, SHARED_K, SHARED_READ,
                      TILE, COLUMNS, PRECISION, ONCE)  # fmt: skip
    else:
        total = _sums(own, n, SKIPPED, columns, live, K, READ, TILE, COLUMNS, PRECISION, ONCE)
    return total


@attrs.frozen(eq=False)
class Stack:
    """Matrices of one form, one below the other, as kernels take them."""

    name: str
    """Of the form's type."""
    columns: int
    """K."""
    tensors: tuple[Tensor, Tensor, Tensor, Tensor]
    strides: tuple[int, int]
    """Of a row: words, and scales."""
    read: Read | None
    """None: plain."""

    @classmethod
    def of(cls, weights: Matrix | Experts, rows: int) -> "Stack":
        """Of matrices with so many rows each. Raises ValueError where no kernel reads them."""
        part = sole_part(weights)
        if part is None:
            raise ValueError("experts in several forms have no kernel: that is for torch")
        if isinstance(part, Tensor):
            if not part.is_contiguous():
                raise ValueError(f"experts with strides {part.stride()}; contiguous ones fit")
            k = part.shape[-1]
            return cls("Tensor", k, (part, part, part, part), (k, k), None)
        if isinstance(part, Fp8Blocks) and not _begins_anew(part, rows):
            raise ValueError(f"blocks of scales that go on over matrices of {rows} rows do not fit")
        read = Read.of(part.cut(0, rows))
        strides = read.words.shape[1], read.scale.shape[-1]
        return cls(type(part).__name__, part.columns, read.tensors, strides, read)

    @property
    def argument(self) -> tuple[Any, ...]:
        """For a kernel."""
        return *self.tensors, *self.strides

    def tile(self, size: int, *, block: bool, gated: bool, beside: "Stack") -> Tile:
        """How it is cut, beside a stack that the same kernel reads; of rows of `size` bytes."""
        if self.read is None and beside.read is None:
            return expert_tile(self.columns, size, block=block, gated=gated)
        tile = packed_expert_tile(self.name, block=block, gated=gated)
        return self.read.fitted(tile) if self.read else tile

    def constants(self, tile: Tile, *depths: int) -> tuple[int, ...]:
        """READ of a launch whose sums go over so many columns."""
        even = all(depth % tile.depth == 0 for depth in depths)
        how = tile.depth, tile.stages, even
        if self.read is None:
            return PLAIN.value, 0, 0, 0, *how
        found = self.read.constants(tile.depth)
        return found["FORM"], found["PAIRS"], found["GROUP"], found["UNIT"], *how


def _begins_anew(form: Fp8Blocks, rows: int) -> bool:
    """Whether blocks do, in each matrix."""
    apart = form.period == rows or rows % BLOCK == form.period % BLOCK == 0
    return form.first == 0 and apart


def reading(own: Stack, shared: Stack, size: int, *, block: bool, gated: bool) -> dict[str, Any]:
    """Options of a launch that reads both, with the tile; for rows of `size` bytes a number."""
    tile = own.tile(size, block=block, gated=gated, beside=shared)
    other = shared.tile(size, block=block, gated=gated, beside=own)
    depths = own.columns, shared.columns
    types = [[tensor.dtype for tensor in stack.tensors] for stack in (own, shared)]
    alike = types[0] == types[1] and own.constants(tile, 1) == shared.constants(other, 1)
    return {
        "READ": own.constants(tile, *(depths if alike else depths[:1])),
        "SHARED_READ": shared.constants(other, *(depths if alike else depths[1:])),
        "ALIKE": alike, "TILE": tile.rows, "PRECISION": "ieee",
        "num_warps": tile.warps, "num_stages": tile.stages,
    }  # fmt: skip


def check_rows(x: Tensor, *stacks: Stack) -> None:
    """Raises TypeError where packed weights would meet other rows than bfloat16 ones."""
    if x.dtype != torch.bfloat16 and any(stack.read for stack in stacks):
        raise TypeError(f"packed weights meet bfloat16 rows, not {x.dtype}: that is for torch")
