"""Residual sums and norms of few rows. References: `flashrt.engine.ops.rms_norm`, `gated_norm`."""

import attrs
import torch
import triton
import triton.language as tl
from torch import Tensor

from flashrt.engine.forms import BLOCK as TERMS_BLOCK
from flashrt.engine.kernels.chain import FOLLOWING, follow
from flashrt.engine.kernels.terms import Terms, WithTerms, store_terms


@triton.jit(do_not_specialize=["rows"])
def _add_norm(
    PARTS, X, SCALE, Y, TERMS, SCALES, rows, N, eps, STRIDE, COUNT: tl.constexpr,
    BLOCK: tl.constexpr, SPLIT: tl.constexpr,
):  # fmt: skip
    """One row a program: X += the parts in their order; Y = X / rms(X) * SCALE, and its terms."""
    follow()
    m = tl.program_id(0)
    n = tl.arange(0, BLOCK)
    live = n < N
    x = tl.load(X + m * N + n, mask=live, other=0.0).to(tl.float32)
    if COUNT > 0:
        total = tl.load(PARTS + m * N + n, mask=live, other=0.0).to(tl.float32)
        for part in tl.static_range(1, COUNT):
            total += tl.load(PARTS + (part * rows + m) * N + n, mask=live, other=0.0)
        rounded = (x + total).to(X.dtype.element_ty)
        tl.store(X + m * N + n, rounded, mask=live)
        x = rounded.to(tl.float32)
    inverse = tl.rsqrt(tl.sum(x * x, 0) / N + eps)
    scale = tl.load(SCALE + n, mask=live, other=0.0)
    y = (x * inverse * scale).to(Y.dtype.element_ty)
    tl.store(Y + m * N + n, y, mask=live)
    if SPLIT > 0:
        blocks = tl.reshape(y.to(tl.float32), (SPLIT, BLOCK // SPLIT))
        of = tl.arange(0, SPLIT)
        store_terms(TERMS, SCALES, blocks, m, of, rows, tl.cdiv(N, BLOCK // SPLIT), STRIDE)


def add_norm(x: Tensor, parts: Tensor | None, scale: Tensor, eps: float) -> Tensor:
    """x += sum of parts in order, in place; -> x / rms(x) * scale.

    x [M, N]; parts [P, M, N] of any dtype, or None to add nothing; scale [N] float32.
    """
    return _normed(x, parts, scale, eps, None)


def add_split_norm(x: Tensor, parts: Tensor | None, scale: Tensor, eps: float) -> WithTerms:
    """The same with its terms; N is at least a block of theirs."""
    terms = Terms.empty(len(x), x.shape[1], x.device)
    return WithTerms(_normed(x, parts, scale, eps, terms), terms)


def _normed(
    x: Tensor, parts: Tensor | None, scale: Tensor, eps: float, terms: Terms | None
) -> Tensor:
    rows, n = x.shape
    y = torch.empty_like(x)
    count = 0 if parts is None else len(parts)
    block = triton.next_power_of_2(n)
    warps = max(1, min(16, block // 256))
    _add_norm[(rows,)](
        x if parts is None else parts, x, scale, y, *_targets(terms, y), rows, n, eps,
        terms.scales.stride(1) if terms else 0, COUNT=count, BLOCK=block,
        SPLIT=block // TERMS_BLOCK if terms else 0, num_warps=warps, **FOLLOWING,
    )  # fmt: skip
    return y


@attrs.frozen(eq=False)
class HalfNorm:
    """Rows times their norm's scale that are still to be divided by their rms.

    The product behind them does it, since it is linear: so a row needs no program of its own that
    waits for all of it.
    """

    rows: Tensor
    """[M, N]."""
    squares: Tensor
    """[M, blocks] float32: sums over blocks of the row before it was scaled."""
    eps: float
    terms: Terms | None = None
    """Of the rows, where a product asks for them."""


@triton.jit(do_not_specialize=["rows"])
def _add_half_norm(
    PARTS, X, SCALE, Y, SQUARES, TERMS, SCALES, rows, N, STRIDE, COUNT: tl.constexpr,
    BLOCK: tl.constexpr, SPLIT: tl.constexpr,
):  # fmt: skip
    """One block of one row: X += the parts in their order; Y = X * SCALE, and its terms."""
    follow()
    m, block = tl.program_id(0), tl.program_id(1)
    n = block * BLOCK + tl.arange(0, BLOCK)
    live = n < N
    x = tl.load(X + m * N + n, mask=live, other=0.0).to(tl.float32)
    if COUNT > 0:
        total = tl.load(PARTS + m * N + n, mask=live, other=0.0)
        for part in tl.static_range(1, COUNT):
            total += tl.load(PARTS + (part * rows + m) * N + n, mask=live, other=0.0)
        rounded = (x + total).to(X.dtype.element_ty)
        tl.store(X + m * N + n, rounded, mask=live)
        x = rounded.to(tl.float32)
    tl.store(SQUARES + m * tl.num_programs(1) + block, tl.sum(x * x, 0))
    scale = tl.load(SCALE + n, mask=live, other=0.0)
    y = (x * scale).to(Y.dtype.element_ty)
    tl.store(Y + m * N + n, y, mask=live)
    if SPLIT > 0:
        of = block * SPLIT + tl.arange(0, SPLIT)
        blocks = tl.reshape(y.to(tl.float32), (SPLIT, BLOCK // SPLIT))
        store_terms(TERMS, SCALES, blocks, m, of, rows, tl.cdiv(N, BLOCK // SPLIT), STRIDE)


HALF_BLOCK = 1024
"""Of a row, in one program. Part of what fixes bits."""


def add_half_norm(
    x: Tensor, parts: Tensor | None, scale: Tensor, eps: float, *, split: bool = False
) -> HalfNorm:
    """x += sum of parts in order, in place; -> x * scale, and what is left to do.

    x [M, N]; parts [P, M, N] float32, or None to add nothing; scale [N] float32. `split`: make the
    terms of the result too.
    """
    rows, n = x.shape
    blocks = triton.cdiv(n, HALF_BLOCK)
    y = torch.empty_like(x)
    squares = torch.empty(rows, blocks, dtype=torch.float32, device=x.device)
    terms = Terms.empty(rows, n, x.device) if split else None
    _add_half_norm[(rows, blocks)](
        x if parts is None else parts, x, scale, y, squares, *_targets(terms, y), rows, n,
        terms.scales.stride(1) if terms else 0, COUNT=0 if parts is None else len(parts),
        BLOCK=HALF_BLOCK, SPLIT=HALF_BLOCK // TERMS_BLOCK if split else 0, num_warps=4,
        **FOLLOWING,
    )  # fmt: skip
    return HalfNorm(y, squares, eps, terms)


def _targets(terms: Terms | None, instead: Tensor) -> tuple[Tensor, Tensor]:
    """What a kernel stores terms in; anything where it makes none."""
    return (instead, instead) if terms is None else (terms.numbers, terms.scales)


@triton.jit
def _gated_norm(
    X, Z, WEIGHT, Y, TERMS, SCALES, row_stride, eps, STRIDE, HEADS: tl.constexpr,
    DIM: tl.constexpr, SPLIT: tl.constexpr,
):  # fmt: skip
    """One head of one row."""
    follow()
    m, h = tl.program_id(0), tl.program_id(1)
    d = tl.arange(0, DIM)
    at = (m * HEADS + h) * DIM + d
    x = tl.load(X + at)
    z = tl.load(Z + m * row_stride + h * DIM + d).to(tl.float32)
    inverse = tl.rsqrt(tl.sum(x * x, 0) / DIM + eps)
    y = (x * inverse * tl.load(WEIGHT + d) * (z * tl.sigmoid(z))).to(Y.dtype.element_ty)
    tl.store(Y + at, y)
    if SPLIT > 0:
        of = h * SPLIT + tl.arange(0, SPLIT)
        blocks = tl.reshape(y.to(tl.float32), (SPLIT, DIM // SPLIT))
        rows = tl.num_programs(0)
        store_terms(TERMS, SCALES, blocks, m, of, rows, HEADS * SPLIT, STRIDE)


def gated_norm(o: Tensor, z: Tensor, weight: Tensor, eps: float) -> Tensor:
    """The linear layers' output norm -> [M, Hv * dv] in z's dtype.

    o [M, Hv, dv] float32; z [M, Hv, dv], rows may be apart; weight [dv] float32.
    """
    return _gated(o, z, weight, eps, None)


def split_gated_norm(o: Tensor, z: Tensor, weight: Tensor, eps: float) -> WithTerms:
    """The same with its terms; dv is a multiple of their block."""
    terms = Terms.empty(len(o), o[0].numel(), o.device)
    return WithTerms(_gated(o, z, weight, eps, terms), terms)


def _gated(o: Tensor, z: Tensor, weight: Tensor, eps: float, terms: Terms | None) -> Tensor:
    rows, heads, dim = o.shape
    y = torch.empty(rows, heads * dim, dtype=z.dtype, device=z.device)
    _gated_norm[(rows, heads)](
        o, z, weight, y, *_targets(terms, y), z.stride(0), eps,
        terms.scales.stride(1) if terms else 0, HEADS=heads, DIM=dim,
        SPLIT=dim // TERMS_BLOCK if terms else 0, num_warps=1, **FOLLOWING,
    )  # fmt: skip
    return y


@triton.jit
def _store_in_ring(ROWS, RING, AT, N, RING_ROWS: tl.constexpr, BLOCK: tl.constexpr):
    follow()
    m = tl.program_id(0)
    n = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    slot = (tl.load(AT) + m) % RING_ROWS
    live = (n < N) & (m < tl.load(AT + 2))
    tl.store(RING + slot * N + n, tl.load(ROWS + m * N + n, mask=live), mask=live)


def store_in_ring(ring: Tensor, at: Tensor, rows: Tensor) -> None:
    """Keep the at[2] living `rows` [M <= RING, N] in ring [RING, N], from position at[0] on.

    Reference: `flashrt.engine.passes.store_in_ring`.
    """
    n = rows.shape[1]
    _store_in_ring[(len(rows), triton.cdiv(n, 1024))](
        rows, ring, at, n, RING_ROWS=len(ring), BLOCK=1024, num_warps=4, **FOLLOWING
    )


@triton.jit
def _silu_mul(X, Y, N, BLOCK: tl.constexpr):
    follow()
    m = tl.program_id(0).to(tl.int64)
    n = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    gate = tl.load(X + m * 2 * N + n, mask=n < N).to(tl.float32)
    up = tl.load(X + m * 2 * N + N + n, mask=n < N).to(tl.float32)
    tl.store(Y + m * N + n, (gate * tl.sigmoid(gate) * up).to(Y.dtype.element_ty), mask=n < N)


def silu_mul(gate_up: Tensor, dtype: torch.dtype | None = None) -> Tensor:
    """silu(gate) * up of gate_up [M, 2 N], gates first -> [M, N], of `dtype` if it is another."""
    rows, n = len(gate_up), gate_up.shape[1] // 2
    y = gate_up.new_empty(rows, n, dtype=dtype or gate_up.dtype)
    _silu_mul[(rows, triton.cdiv(n, 1024))](gate_up, y, n, BLOCK=1024, num_warps=4, **FOLLOWING)
    return y
