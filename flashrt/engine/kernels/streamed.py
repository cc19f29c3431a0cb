"""From a dense layer's mixer to the next one's as one launch: which layers go so, and with what.

References: `flashrt.engine.model.Layer.finish`, and the norm and first product of the layer behind.
The kernel is `stream`; there one reads how it works.
"""

import itertools
from collections.abc import Sequence
from typing import Any

import attrs
import torch
from torch import Tensor
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

from flashrt.engine.forms import BLOCK, SPAN, Fp8Blocks, Int4
from flashrt.engine.kernels.described import described, described_numbers
from flashrt.engine.kernels.e4m3 import Read, terms_of
from flashrt.engine.kernels.plain import ROWS_MAX, Rows, multiplied
from flashrt.engine.kernels.stream import stream
from flashrt.engine.kernels.streamring import (
    BF16,
    FP8,
    INT4,
    scale_columns,
    sorts_of,
)
from flashrt.engine.kernels.streamrows import EMPTY
from flashrt.engine.kernels.streams import first_of, out_of
from flashrt.engine.kernels.terms import Terms
from flashrt.engine.kernels.tiles import STREAM, TAIL_ROWS, Flow, StreamTile, lane_steps
from flashrt.engine.matrix import Matrix, Packed, Part, columns_of, rows_of, sole_part
from flashrt.engine.model import Layer
from flashrt.engine.weights import MlpWeights

REGISTERS, MOST_REGISTERS = 65536, 255
"""Of a processor, and of one thread."""

COPYING_WARPS = 4
"""Of a program, beside those that multiply: two, in a group of as many as registers come for."""

RESERVED_BYTES = 1024
"""Of shared memory, for each program that runs."""

COUNTERS = 3
"""One behind each product but the last."""

_KINDS = {"Tensor": BF16.value, "Fp8Blocks": FP8.value, "Int4": INT4.value}


@attrs.frozen(eq=False)
class _Matrix:
    """One of the four as the kernel takes it."""

    descriptor: TensorDescriptor
    scale: TensorDescriptor | Tensor
    """Of int4 described, of FP8 as it is, of plain ones anything."""
    step: int
    share: int

    @classmethod
    def of(cls, part: Part, tile: StreamTile) -> "_Matrix":
        if isinstance(part, Tensor):
            return cls(described(part, tile.rows), part, 0, 1)
        assert isinstance(part, Fp8Blocks | Int4)
        read = Read.of(part)
        scale = (
            described_numbers(read.scale, 1, tile.rows) if isinstance(part, Int4) else read.scale
        )
        return cls(described(read.weight, tile.rows), scale, read.step, read.share)


@attrs.frozen(eq=False)
class Streamed:
    """A layer's output projection, norm and feed-forward half, and the next one's norm and first
    projection. Of the last layer, its own."""

    matrices: Sequence[_Matrix]
    """Output projection, gates with ups, down, and the next projection, or anything."""
    tail: Tensor
    """[T, h] plain rows behind that, or anything."""
    tile: StreamTile
    kind: int
    half: bool
    """Whether scales are float16 (int4)."""
    hidden: int
    width: int
    """Columns of what the mixer leaves."""
    inner: int
    projected: int
    """Rows of the next projection without its tail; none of the last layer."""
    tail_rows: int
    post_scale: Tensor
    next_scale: Tensor
    eps: float
    lanes: int

    @classmethod
    def of(cls, layer: Layer, following: Layer | None) -> "Streamed | None":
        """None where the layer's parts go launch by launch; `following`: None behind the last."""
        found = _found(layer, following)
        if found is None:
            return None
        parts, tail = found
        device, name = layer.post_scale.device, type(parts[0]).__name__
        tile = STREAM[name]
        hidden, width, inner = rows_of(parts[0]), columns_of(parts[0]), columns_of(parts[2])
        processors = torch.cuda.get_device_properties(device).multi_processor_count
        matrices = [_Matrix.of(part, tile) for part in parts]
        return cls(
            matrices if following else [*matrices, matrices[0]],
            layer.post_scale if tail is None else tail, tile, _KINDS[name], _is_half(parts[0]),
            hidden, width, inner, rows_of(parts[3]) if following else 0,
            0 if tail is None else len(tail), layer.post_scale,
            following.input_scale if following else layer.post_scale, layer.eps,
            tile.lanes * processors,
        )  # fmt: skip

    def run(self, x: Tensor, mixed: Rows, sums: "Sums", counters: Tensor) -> Tensor | None:
        """x [M <= 64, h] += the mixer's output, then the feed-forward half's; -> what the next
        mixer reads [M, P], of the last layer nothing. `mixed` [M, width]: what the output
        projection multiplies; counters [COUNTERS] int32: zeros."""
        columns = next(most for most in self.tile.flows if len(x) <= most)
        flow = self.tile.flows[columns]
        grid = (self.lanes // flow.lanes,)
        options = self._options(columns, flow)
        arguments, result = self._arguments(x, mixed, sums, counters, columns)
        kernel = stream.warmup(*arguments, grid=grid, **options)
        check_fits(kernel.metadata.shared, grid[0], x.device)
        stream[grid](*arguments, **options)
        return result if self.projected else None

    def _arguments(
        self, x: Tensor, mixed: Rows, sums: "Sums", counters: Tensor, columns: int
    ) -> tuple[tuple[Any, ...], Tensor]:
        rows = len(x)
        middle, inner, last = (
            self._product_rows(x, n) for n in (self.hidden, self.inner, self.hidden)
        )
        squares = [x.new_empty(rows, self.hidden // BLOCK, dtype=torch.float32) for _ in range(2)]
        result = x.new_empty(rows, self.projected + self.tail_rows)
        stride = 0 if self.kind == BF16.value else middle[2].stride(1)
        met, scales = zip(
            self._given(mixed), *(made[1:] for made in (middle, inner, last)), strict=True
        )
        arguments = (
            *(matrix.descriptor for matrix in self.matrices),
            *(matrix.scale for matrix in self.matrices),
            *(described(one.view(-1, rows, one.shape[-1]), self._terms, columns) for one in met),
            *(self._described_scales(one, columns) for one in scales), self.tail, x,
            self.post_scale, self.next_scale, sums.parts, sums.wide, *middle, squares[0], *inner,
            *last, squares[1], result if self.projected else x, counters, rows, stride,
            *(matrix.step for matrix in self.matrices), self.eps,
        )  # fmt: skip
        return arguments, result

    def _given(self, mixed: Rows) -> tuple[Tensor, Tensor]:
        """What the first product reads: rows, or terms and their scales."""
        if self.kind == BF16.value:
            rows = multiplied(mixed)
            return rows, rows
        terms = terms_of(mixed)
        return terms.numbers, terms.scales

    def _described_scales(self, scales: Tensor, columns: int) -> TensorDescriptor | Tensor:
        """Of terms [2, blocks, M], as many blocks as meet a step; of plain rows anything."""
        if self.kind == BF16.value:
            return scales
        blocks = sorts_of(self.kind)
        return described_numbers(scales.flatten(0, 1), blocks, scale_columns(columns))

    def _product_rows(self, x: Tensor, n: int) -> tuple[Tensor, Tensor, Tensor]:
        """Room for what a product of n columns reads: rows, their terms, and scales."""
        rows = x.new_empty(len(x), n)
        if self.kind == BF16.value:
            return rows, rows, rows
        terms = Terms.empty(len(x), n, x.device)
        return rows, terms.numbers, terms.scales

    def _options(self, columns: int, flow: Flow) -> dict[str, Any]:
        threads = 32 * (flow.warps + COPYING_WARPS) * self.tile.lanes // flow.lanes
        return {
            "PERS": tuple(self._lane(n, k) for n, k in self._shapes),
            "SHARES": tuple(matrix.share for matrix in self.matrices), "H": self.hidden,
            "K": self.width, "WIDE": self.inner, "N": self.projected, "TAIL_N": self.tail_rows,
            "HALF": self.half, "FORM": self.kind, "EACH": flow.lanes, "TILE": self.tile.rows,
            "BOXES": self.tile.boxes, "COLUMNS": columns, "STAGES": flow.stages,
            "WARPS": flow.warps, "num_warps": flow.warps,
            # So that as many programs run at once as are launched.
            "maxnreg": min(MOST_REGISTERS, REGISTERS // threads // 8 * 8), "launch_pdl": True,
        }  # fmt: skip

    @property
    def _shapes(self) -> Sequence[tuple[int, int]]:
        """[N, K] of all matrices."""
        return (
            (self.hidden, self.width), (2 * self.inner, self.hidden), (self.hidden, self.inner),
            (self.projected, self.hidden),
        )  # fmt: skip

    def _lane(self, n: int, k: int) -> int:
        """Tiles of a matrix [n, k] in one lane."""
        return lane_steps(k // self._span, -(-n // self.tile.rows), self.lanes)

    def sums(self) -> tuple[int, int]:
        """Places for the parts of all rows: of x's columns, and of others."""
        out, gate_up, down, project = (
            ROWS_MAX * n * (-(-(k // self._span - 1) // self._lane(n, k)) + 1)
            for n, k in self._shapes
        )
        return max(out, down), max(gate_up, project)

    @property
    def _terms(self) -> int:
        """Numbers that a row has for each of its own."""
        return 1 if self.kind == BF16.value else 2

    @property
    def _span(self) -> int:
        """Columns of a step."""
        return SPAN if self.kind == INT4.value else BLOCK


@attrs.frozen(eq=False)
class Sums:
    """Places for the parts of sums, float32, all of them empty between launches."""

    parts: Tensor
    wide: Tensor

    @classmethod
    def of(cls, layers: Sequence[Streamed], device: torch.device) -> "Sums":
        """Enough for each."""
        narrow, wide = zip((1, 1), *(layer.sums() for layer in layers), strict=True)
        return cls(_empty(max(narrow), device), _empty(max(wide), device))


def _empty(count: int, device: torch.device) -> Tensor:
    return torch.full((count,), EMPTY.value, dtype=torch.int32, device=device).view(torch.float32)


@attrs.frozen(eq=False)
class Streams:
    """The layers of a model that go this way, and what they share."""

    layers: Sequence[Streamed | None]
    sums: Sums
    counters: Tensor
    """[layers, COUNTERS] int32."""

    @classmethod
    def of(cls, layers: Sequence[Layer], device: torch.device) -> "Streams":
        """Of a model's layers in order."""
        made = [Streamed.of(*pair) for pair in itertools.zip_longest(layers, layers[1:])]
        sums = Sums.of([one for one in made if one is not None], device)
        counters = torch.zeros(len(layers), COUNTERS, dtype=torch.int32, device=device)
        return cls(made, sums, counters)

    def start(self) -> None:
        """Before the first layer of a pass."""
        self.counters.zero_()

    def take(self, number: int) -> bool:
        """Whether a layer goes this way."""
        return self.layers[number] is not None

    def run(self, number: int, x: Tensor, mixed: Rows) -> Tensor | None:
        """See `Streamed.run`, of a layer that is taken."""
        layer = self.layers[number]
        assert layer is not None
        return layer.run(x, mixed, self.sums, self.counters[number])


def _found(layer: Layer, following: Layer | None) -> tuple[list[Part], Tensor | None] | None:
    """The matrices, and the next projection's plain tail; None where they do not fit together."""
    if not isinstance(layer.mlp, MlpWeights):
        return None
    matrices = [out_of(layer.mixer), layer.mlp.gate_up, layer.mlp.down]
    parts, tail = [sole_part(matrix) for matrix in matrices], None
    if following is not None:
        first, tail = _with_tail(first_of(following.mixer))
        parts.append(first)
    found = [part for part in parts if part is not None and _is_taken(part)]
    alike = {(type(part), _is_half(part)) for part in found}
    fit = len(found) == len(parts) and len(alike) == 1
    return (found, tail) if fit else None


def _with_tail(matrix: Matrix) -> tuple[Part | None, Tensor | None]:
    """A matrix without the few plain rows at its end, and those."""
    if isinstance(matrix, Packed) and len(matrix.parts) == 2:
        first, tail = matrix.parts
        if isinstance(tail, Tensor) and len(tail) <= TAIL_ROWS:
            return first, tail
    return sole_part(matrix), None


def _is_half(part: Part) -> bool:
    """Whether its scales are float16 (int4)."""
    return isinstance(part, Int4) and part.scale.dtype == torch.float16


def _is_taken(part: Part) -> bool:
    """Whether a matrix is one of those that lie as the kernel reads them."""
    n, k = rows_of(part), columns_of(part)
    match part:
        case Tensor():
            return part.dtype == torch.bfloat16 and part.is_contiguous() and k % BLOCK == 0
        case Fp8Blocks():
            return not (part.first or part.begins_anew or n % BLOCK or k % BLOCK)
        case Int4():
            return part.pairs is not None and n % BLOCK == 0 and k % SPAN == 0
    return False


def check_fits(shared: int, programs: int, device: torch.device) -> None:
    """Raises RuntimeError where not all programs would run at once, since they wait for each
    other."""
    processors = torch.cuda.get_device_properties(device)
    each = -(-programs // processors.multi_processor_count)
    needed = each * (shared + RESERVED_BYTES)
    if needed > processors.shared_memory_per_multiprocessor:
        raise RuntimeError(
            f"{each} programs of a streamed layer need {needed} bytes of a processor's shared "
            f"memory, which has {processors.shared_memory_per_multiprocessor}"
        )
