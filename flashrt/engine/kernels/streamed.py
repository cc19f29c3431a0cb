"""The second half of a dense layer as one launch: which layers go that way, and with what.

References: `flashrt.engine.model.Layer.finish`, and the norm of the layer behind. The kernel is
`stream`; there one reads how it works.
"""

from collections.abc import Sequence
from typing import Any

import attrs
import torch
from torch import Tensor
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

from flashrt.engine.forms import BLOCK, SPAN, Fp8Blocks, Int4
from flashrt.engine.kernels.e4m3 import Read, terms_of
from flashrt.engine.kernels.norm import HalfNorm
from flashrt.engine.kernels.plain import ROWS_MAX, Rows, multiplied
from flashrt.engine.kernels.stream import stream
from flashrt.engine.kernels.streamring import BF16, FP8, INT4
from flashrt.engine.kernels.streamrows import EMPTY
from flashrt.engine.kernels.terms import Terms
from flashrt.engine.kernels.tiles import STREAM, Flow, StreamTile, lane_steps
from flashrt.engine.matrix import Matrix, Part, sole_part
from flashrt.engine.mixers import LinearMixer
from flashrt.engine.model import Layer
from flashrt.engine.weights import MlpWeights

HOPPER = (9, 0)
"""The one kind of device whose matrix unit and copy engine the kernel speaks to."""

REGISTERS, MOST_REGISTERS = 65536, 255
"""Of a processor, and of one thread."""

RESERVED_BYTES = 1024
"""Of shared memory, for each program that runs."""

_KINDS = {"Tensor": BF16.value, "Fp8Blocks": FP8.value, "Int4": INT4.value}


@attrs.frozen(eq=False)
class _Matrix:
    """One of the three as the kernel takes it."""

    descriptor: TensorDescriptor
    scale: Tensor
    step: int
    share: int

    @classmethod
    def of(cls, part: Part, tile: StreamTile) -> "_Matrix":
        if isinstance(part, Tensor):
            return cls(_described(part, tile), part, 0, 1)
        assert isinstance(part, Fp8Blocks | Int4)
        read = Read.of(part)
        return cls(_described(read.weight, tile), read.scale, read.step, read.share)


def _described(weight: Tensor, tile: StreamTile) -> TensorDescriptor:
    """[N, K] in boxes of 128 bytes of each row."""
    bits = 8 * weight.element_size()
    layout = gl.NVMMASharedLayout(swizzle_byte_width=128, element_bitwidth=bits, rank=2)
    box = [tile.rows, 128 // weight.element_size()]
    return TensorDescriptor.from_tensor(weight, box, layout)


@attrs.frozen(eq=False)
class Streamed:
    """A layer's output projection, norm and feed-forward half, and the norm of the next."""

    matrices: tuple[_Matrix, _Matrix, _Matrix]
    tile: StreamTile
    kind: int
    half: bool
    """Whether scales are float16 (int4)."""
    hidden: int
    width: int
    """Columns of what the mixer leaves."""
    inner: int
    post_scale: Tensor
    eps: float
    lanes: int

    @classmethod
    def of(cls, layer: Layer) -> "Streamed | None":
        """None where the layer's parts go launch by launch."""
        matrices = _matrices(layer)
        if matrices is None or torch.cuda.get_device_capability(matrices[0].device) != HOPPER:
            return None
        parts = [sole_part(matrix) for matrix in matrices]
        if not all(map(_is_taken, parts)) or len({type(part) for part in parts}) > 1:
            return None
        device, form = matrices[0].device, type(parts[0]).__name__
        tile = STREAM[form]
        out, gate_up, down = (_Matrix.of(part, tile) for part in parts if part is not None)
        (hidden, width), inner = matrices[0].shape, matrices[2].shape[1]
        halves = {part.scale.dtype == torch.float16 for part in parts if isinstance(part, Int4)}
        if len(halves) > 1:
            return None
        processors = torch.cuda.get_device_properties(device).multi_processor_count
        return cls(
            (out, gate_up, down), tile, _KINDS[form], True in halves, hidden, width, inner,
            layer.post_scale, layer.eps, tile.lanes * processors,
        )  # fmt: skip

    def run(
        self, x: Tensor, mixed: Rows, next_scale: Tensor, sums: "Sums", counters: Tensor
    ) -> HalfNorm:
        """x [M <= 64, h] += the mixer's output, then the feed-forward half's; -> x * next_scale,
        still to be divided. `mixed` [M, width]: what the output projection multiplies; counters
        [2] int32: zeros."""
        columns = next(most for most in self.tile.flows if len(x) <= most)
        flow = self.tile.flows[columns]
        grid = (self.lanes // flow.lanes,)
        options = self._options(columns, flow)
        arguments, result = self._arguments(x, mixed, next_scale, sums, counters)
        kernel = stream.warmup(*arguments, grid=grid, **options)
        _check_fits(kernel.metadata.shared, grid[0], x.device)
        stream[grid](*arguments, **options)
        return result

    def _arguments(
        self, x: Tensor, mixed: Rows, next_scale: Tensor, sums: "Sums", counters: Tensor
    ) -> tuple[tuple[Any, ...], HalfNorm]:
        rows = len(x)
        given = self._given(mixed)
        made = [self._product_rows(x, n) for n in (self.hidden, self.inner, self.hidden)]
        squares = [x.new_empty(rows, self.hidden // BLOCK, dtype=torch.float32) for _ in range(2)]
        y, terms = made[2]
        stride = 0 if terms is None else terms.scales.stride(1)
        arguments = (
            *(matrix.descriptor for matrix in self.matrices),
            *(matrix.scale for matrix in self.matrices), *given, x, self.post_scale, next_scale,
            sums.parts, sums.wide, *_targets(*made[0]), squares[0], *_targets(*made[1]),
            *_targets(y, terms), squares[1], counters, rows, stride,
            *(matrix.step for matrix in self.matrices), self.eps,
        )  # fmt: skip
        return arguments, HalfNorm(y, squares[1], self.eps, terms)

    def _given(self, mixed: Rows) -> tuple[Tensor, Tensor]:
        """What the first product reads: rows, or terms and their scales."""
        if self.kind == BF16.value:
            rows = multiplied(mixed)
            return rows, rows
        terms = terms_of(mixed)
        return terms.numbers, terms.scales

    def _product_rows(self, x: Tensor, n: int) -> tuple[Tensor, Terms | None]:
        """Room for what a product of n columns reads."""
        terms = None if self.kind == BF16.value else Terms.empty(len(x), n, x.device)
        return x.new_empty(len(x), n), terms

    def _options(self, columns: int, flow: Flow) -> dict[str, Any]:
        lanes = {
            f"PER{at}": self._lane(n, k)
            for at, (n, k) in enumerate(
                [
                    (self.hidden, self.width),
                    (2 * self.inner, self.hidden),
                    (self.hidden, self.inner),
                ]
            )
        }
        shares = {f"SHARE{at}": matrix.share for at, matrix in enumerate(self.matrices)}
        threads = 32 * flow.warps * self.tile.lanes // flow.lanes
        return {
            **lanes, **shares, "H": self.hidden, "K": self.width, "WIDE": self.inner,
            "HALF": self.half, "FORM": self.kind, "EACH": flow.lanes, "TILE": self.tile.rows,
            "BOXES": self.tile.boxes, "COLUMNS": columns, "STAGES": flow.stages,
            "DEPTH": flow.depth, "WARPS": flow.warps, "num_warps": flow.warps,
            # So that as many programs run at once as are launched.
            "maxnreg": min(MOST_REGISTERS, REGISTERS // threads // 8 * 8), "launch_pdl": True,
        }  # fmt: skip

    def _lane(self, n: int, k: int) -> int:
        """Tiles of a matrix [n, k] in one lane."""
        return lane_steps(k // self._span, n // self.tile.rows, self.lanes)

    def sums(self) -> tuple[int, int]:
        """Places for the parts of all rows: of x's columns, and between."""
        narrow = max(self._parts(self.hidden, self.width), self._parts(self.hidden, self.inner))
        wide = self._parts(2 * self.inner, self.hidden)
        return narrow * ROWS_MAX * self.hidden, wide * ROWS_MAX * 2 * self.inner

    def _parts(self, n: int, k: int) -> int:
        """Lanes that a sum over K may lie in."""
        return -(-(k // self._span - 1) // self._lane(n, k)) + 1

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
    """[layers, 2] int32."""

    @classmethod
    def of(cls, layers: Sequence[Layer], device: torch.device) -> "Streams":
        """Of a model's layers in order."""
        made = [Streamed.of(layer) for layer in layers]
        sums = Sums.of([one for one in made if one is not None], device)
        return cls(made, sums, torch.zeros(len(layers), 2, dtype=torch.int32, device=device))

    def start(self) -> None:
        """Before the first layer of a pass."""
        self.counters.zero_()

    def run(self, number: int, x: Tensor, mixed: Rows, next_scale: Tensor) -> HalfNorm | None:
        """See `Streamed.run`; None where this layer goes launch by launch."""
        layer = self.layers[number]
        if layer is None:
            return None
        return layer.run(x, mixed, next_scale, self.sums, self.counters[number])


def _targets(rows: Tensor, terms: Terms | None) -> tuple[Tensor, Tensor, Tensor]:
    """Rows, their terms and scales; anything where there are none."""
    return (rows, rows, rows) if terms is None else (rows, terms.numbers, terms.scales)


def _matrices(layer: Layer) -> tuple[Matrix, Matrix, Matrix] | None:
    """Output projection, gates with ups, and down; None of a mixture."""
    mixer, mlp = layer.mixer, layer.mlp
    if not isinstance(mlp, MlpWeights):
        return None
    out = mixer.weights.out_proj if isinstance(mixer, LinearMixer) else mixer.weights.o_proj
    return out, mlp.gate_up, mlp.down


def _is_taken(part: Part | None) -> bool:
    """Whether a matrix is one of those that lie as the kernel reads them."""
    match part:
        case Tensor():
            return part.dtype == torch.bfloat16 and _in_tiles(len(part), part.shape[1], BLOCK)
        case Fp8Blocks():
            begins_anew = part.period % BLOCK and part.first + len(part.weight) > part.period
            return not (part.first or begins_anew) and _in_tiles(
                len(part.weight), part.columns, BLOCK
            )
        case Int4():
            return part.pairs is not None and _in_tiles(len(part.weight), part.columns, SPAN)
    return False


def _in_tiles(n: int, k: int, span: int) -> bool:
    return n % BLOCK == 0 and k % span == 0


def _check_fits(shared: int, programs: int, device: torch.device) -> None:
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
