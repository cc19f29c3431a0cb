"""Products of a block with FP8 blocks or wide int4 by `blockstream`: which go so, and with what.

References: those of `blocklinear`, whose callers need not know which way a product goes.
"""

from typing import TypeGuard

import torch
import triton
import triton.language as tl
from torch import Tensor

from flashrt.engine.forms import BLOCK, SPAN, Form, Fp8Blocks, Int4
from flashrt.engine.kernels.blockstream import WARPS, block_stream
from flashrt.engine.kernels.chain import FOLLOWING, follow
from flashrt.engine.kernels.described import described, described_numbers
from flashrt.engine.kernels.e4m3 import Read, terms_of
from flashrt.engine.kernels.plain import multiplied
from flashrt.engine.kernels.streamring import FP8, INT4
from flashrt.engine.kernels.terms import TOGETHER, Terms, WithTerms, store_terms
from flashrt.engine.kernels.tiles import BLOCK_STREAM, FUSED_ROWS, Runs

Taken = Fp8Blocks | Int4

_BLOCK = tl.constexpr(BLOCK)
_KINDS = {"Fp8Blocks": FP8.value, "Int4": INT4.value}


def takes(form: Form, rows: int) -> TypeGuard[Taken]:
    """Whether a block of so many rows is multiplied here: whole tiles of a matrix that lies as the
    kernel reads it."""
    n, k = len(form.weight), form.columns
    if not 0 < rows <= FUSED_ROWS or n % BLOCK:
        return False
    if isinstance(form, Fp8Blocks):
        return not (form.first or form.begins_anew or k % BLOCK)
    return isinstance(form, Int4) and form.pairs is not None and k % SPAN == 0


def linear(x: Tensor | WithTerms, form: Taken, y: Tensor) -> None:
    """Fill y [M, N], whose rows may be apart."""
    _fill(x, form, y, Runs.whole(len(form.weight), _steps(form)))


def linear_parts(x: Tensor | WithTerms, form: Taken) -> Tensor:
    """The product as [parts, M, N] float32, to be added in order by whoever reads it."""
    runs = Runs.alike(len(form.weight), _steps(form), _processors(form.weight.device))
    return _parts(x, form, runs)


def silu_mul(x: Tensor | WithTerms, gate_up: Taken) -> WithTerms:
    """silu(x gate^T) * (x up^T) [M, I], rounded once, with its terms; gate_up [2 I, K], gates
    first; I a multiple of BLOCK."""
    runs = Runs.even(len(gate_up.weight), _steps(gate_up), _processors(gate_up.weight.device))
    parts = _parts(x, gate_up, runs)
    rows, width = parts.shape[1], parts.shape[2] // 2
    y = torch.empty(rows, width, dtype=torch.bfloat16, device=parts.device)
    terms = Terms.empty(rows, width, parts.device)
    blocks = width // BLOCK
    _silu_mul[(rows, triton.cdiv(blocks, TOGETHER))](
        parts, y, terms.numbers, terms.scales, rows, blocks, runs.steps, runs.total, runs.count,
        terms.scales.stride(1), MOST=runs.most, COUNT=TOGETHER, num_warps=4,
        **FOLLOWING,
    )  # fmt: skip
    return WithTerms(y, terms)


@triton.jit
def _whole(
    PARTS, m, block, live, rows, BLOCKS, STEPS, TOTAL, RUNS, MOST: tl.constexpr,
    COUNT: tl.constexpr,
):  # fmt: skip
    """The sums [COUNT, BLOCK] of some blocks of row m: their parts in order, `Runs.parts` of
    them."""
    first = block * STEPS
    parts = ((first + STEPS) * RUNS - 1) // TOTAL - ((first + 1) * RUNS - 1) // TOTAL + 1
    at = (m * BLOCKS + block)[:, None] * _BLOCK + tl.arange(0, _BLOCK)[None, :]
    total = tl.load(PARTS + at, mask=live[:, None], other=0.0)
    for part in tl.static_range(1, MOST):
        there = live & (part < parts)
        total += tl.load(PARTS + part * rows * BLOCKS * _BLOCK + at, mask=there[:, None], other=0.0)
    return total


@triton.jit(do_not_specialize=["rows"])
def _silu_mul(
    PARTS, Y, TERMS, SCALES, rows, BLOCKS, STEPS, TOTAL, RUNS, STRIDE, MOST: tl.constexpr,
    COUNT: tl.constexpr,
):  # fmt: skip
    """Some blocks of one row; PARTS [MOST, M, 2 * BLOCKS blocks], gates first."""
    follow()
    m = tl.program_id(0)
    block = tl.program_id(1) * COUNT + tl.arange(0, COUNT)
    live = block < BLOCKS
    gate = _whole(PARTS, m, block, live, rows, 2 * BLOCKS, STEPS, TOTAL, RUNS, MOST, COUNT)
    up = _whole(PARTS, m, block + BLOCKS, live, rows, 2 * BLOCKS, STEPS, TOTAL, RUNS, MOST, COUNT)
    y = (gate * tl.sigmoid(gate) * up).to(tl.bfloat16)
    at = (m * BLOCKS + block)[:, None] * _BLOCK + tl.arange(0, _BLOCK)[None, :]
    tl.store(Y + at, y, mask=live[:, None])
    store_terms(TERMS, SCALES, y.to(tl.float32), m, block, rows, BLOCKS, STRIDE)


def _parts(x: Tensor | WithTerms, form: Taken, runs: Runs) -> Tensor:
    rows = multiplied(x)
    y = rows.new_empty(runs.most, len(rows), len(form.weight), dtype=torch.float32)
    _fill(x, form, y, runs)
    return y


def _fill(x: Tensor | WithTerms, form: Taken, y: Tensor, runs: Runs) -> None:
    """Fill y [parts, M, N], or [M, N] of one part."""
    name, rows = type(form).__name__, len(multiplied(x))
    terms, read = terms_of(x), Read.of(form)
    columns, stages = _flow(name, rows)
    packed = isinstance(form, Int4)
    half = packed and form.scale.dtype == torch.float16
    scale = described_numbers(read.scale, 1, BLOCK) if packed else read.scale
    block_stream[(triton.cdiv(rows, columns), runs.count)](
        described(read.weight, BLOCK),
        described(terms.numbers, 2, columns),
        described_numbers(terms.scales.view(-1), columns), scale, y, rows, len(form.weight),
        runs.steps, read.step, terms.scales.stride(1), y.stride(-2), FORM=_KINDS[name], HALF=half,
        SHARE=read.share, COLUMNS=columns, STAGES=stages,
        KEPT=triton.next_power_of_2(runs.longest), num_warps=WARPS.value,
        launch_pdl=True,
    )  # fmt: skip


def _flow(name: str, rows: int) -> tuple[int, int]:
    """Columns of a program, and pieces under way."""
    flows = BLOCK_STREAM[name]
    columns = next((most for most in flows if rows <= most), max(flows))
    return columns, flows[columns]


def _steps(form: Taken) -> int:
    """Of a tile: 128 bytes of each row."""
    return form.columns // (SPAN if isinstance(form, Int4) else BLOCK)


def _processors(device: torch.device) -> int:
    return torch.cuda.get_device_properties(device).multi_processor_count
