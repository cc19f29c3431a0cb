"""Products of a block of rows: by the library, or of packed weights by a kernel of their own.

Reference: `flashrt.engine.linear.block_linear`. Up to FUSED_ROWS the packed weights are read
as they lie, on Hopper by `blockstream`, where that takes them. Of more rows, slices of them are
made dense, one at a time, and the library multiplies.
"""

import functools
from collections.abc import Iterator
from types import ModuleType

import torch
from torch import Tensor
from torch.nn import functional

from flashrt.engine.forms import BLOCK, Form
from flashrt.engine.kernels import e4m3, packed
from flashrt.engine.kernels.dense import dense
from flashrt.engine.kernels.linear import takes_terms
from flashrt.engine.kernels.norm import silu_mul
from flashrt.engine.kernels.plain import multiplied
from flashrt.engine.kernels.streams import can_stream
from flashrt.engine.kernels.terms import WithTerms
from flashrt.engine.kernels.tiles import FUSED_ROWS, Tile
from flashrt.engine.matrix import SLICE_BYTES, Matrix, Packed, rows_of

BlockRows = Tensor | WithTerms
"""[M, K], with their terms where `takes_block_terms` says so."""


def takes_block_terms(weight: Matrix, rows: int) -> bool:
    """Whether a product of so many rows with it is quicker where they come with their terms."""
    return rows <= FUSED_ROWS and weight.shape[1] >= BLOCK and takes_terms(weight)


def block_linear(block: BlockRows, weight: Matrix) -> Tensor:
    """A block [M, K] @ weight [N, K]^T -> [M, N] in its dtype; its bits may depend on M."""
    x = multiplied(block)
    if isinstance(weight, Tensor):
        return functional.linear(x, weight)
    y = x.new_empty(len(x), len(weight))
    for part, start in zip(weight.parts, weight.starts, strict=False):
        columns = y[:, start : start + rows_of(part)]
        if isinstance(part, Tensor):
            torch.mm(x, part.T, out=columns)
        elif (stream := _stream(x, part)) is not None:
            stream.linear(block, part, columns)
        elif _is_fused(x):
            _fused(block, part, columns, _tile(x, part))
        else:
            _by_slices(x, part, columns)
    return y


def block_linear_parts(block: BlockRows, weight: Matrix) -> Tensor:
    """The same product as [parts, M, N], to be added in order by whoever reads it."""
    x = multiplied(block)
    form = _fused_form(x, weight)
    if form is None:
        return block_linear(block, weight)[None]
    if (stream := _stream(x, form)) is not None:
        parts: Tensor = stream.linear_parts(block, form)
        return parts
    tile = _tile(x, form)
    y = x.new_empty(tile.parts, len(x), len(weight), dtype=torch.float32)
    _fused(block, form, y, tile)
    return y


def block_silu_mul(block: BlockRows, gate_up: Matrix) -> BlockRows:
    """silu(x gate^T) * (x up^T) -> [M, I] of a block x, with its terms where they cost nothing;
    gate_up [2 I, K], gates first."""
    x = multiplied(block)
    form = _fused_form(x, gate_up)
    if form is None:
        return silu_mul(block_linear(block, gate_up))
    if len(gate_up) % (2 * BLOCK) == 0 and (stream := _stream(x, form)) is not None:
        inner: WithTerms = stream.silu_mul(block, form)
        return inner
    y = x.new_empty(len(x), len(gate_up) // 2)
    _fused(block, form, y, _tile(x, form), gated=True)
    return y


def _stream(x: Tensor, form: Form) -> ModuleType | None:
    """`blockstreamed` for what it takes."""
    module = _blockstreamed(x.device)
    return module if module is not None and module.takes(form, len(x)) else None


@functools.cache
def _blockstreamed(device: torch.device) -> ModuleType | None:
    """Where its language is spoken."""
    if not can_stream(device):
        return None
    from flashrt.engine.kernels import blockstreamed

    return blockstreamed


def _tile(x: Tensor, form: Form) -> Tile:
    of = e4m3.block_tile_of if e4m3.takes(form) else packed.block_tile_of
    return of(form, len(x))


def _fused(block: BlockRows, form: Form, y: Tensor, tile: Tile, *, gated: bool = False) -> None:
    if e4m3.takes(form):
        e4m3.fill_block(block, form, y, tile, gated=gated)
    else:
        packed.fill_block(multiplied(block), form, y, tile, gated=gated)


def _is_fused(x: Tensor) -> bool:
    return len(x) <= FUSED_ROWS


def _fused_form(x: Tensor, weight: Matrix) -> Form | None:
    """What one kernel multiplies with; None: there are several, or none."""
    if isinstance(weight, Packed) and len(weight.parts) == 1 and _is_fused(x):
        part = weight.parts[0]
        return None if isinstance(part, Tensor) else part
    return None


def _by_slices(x: Tensor, form: Form, y: Tensor) -> None:
    """Fill y [M, N]. What lies dense never takes more than SLICE_BYTES."""
    n, k = len(form.weight), form.columns
    room = x.new_empty(min(n, _slice_rows(k)), k)
    for start, stop in _slices(n, k):
        rows = dense(form.cut(start, stop), room)
        torch.mm(x, rows.T, out=y[:, start:stop])


def _slices(n: int, k: int) -> Iterator[tuple[int, int]]:
    step = _slice_rows(k)
    return ((start, min(start + step, n)) for start in range(0, n, step))


def _slice_rows(k: int) -> int:
    """Rows of K columns that are made dense together."""
    count = SLICE_BYTES // (torch.bfloat16.itemsize * k)
    return max(1, count - count % BLOCK if count > BLOCK else count)
