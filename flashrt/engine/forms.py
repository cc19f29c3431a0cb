"""The forms in which a matrix lies packed in memory, and the numbers that each of them means.

N-major, so that a product of few rows reads a tile of weight rows along K with their scales beside
them. A part is made once, at load; `cut` gives views, `dense` is the reference of every kernel that
reads a form itself.
"""

import functools
from collections.abc import Sequence

import attrs
import torch
from torch import Tensor

BLOCK = 128
"""Rows and columns that share a scale in FP8 blocks."""

NVFP4_GROUP = 16
"""Columns that share a scale in NVFP4."""

NIBBLES = 8
"""Four-bit numbers in an int32, the lowest first."""

PLACES = (0, 4, 1, 5, 2, 6, 3, 7)
"""Which of a word's nibbles holds each of its eight columns, in a form: neighbours lie 16 bits
apart, so that a kernel has both in one register, as halves, by one shift."""

SPAN = 2 * BLOCK
"""int4, wide: columns that share bytes, the first half of them in the lower nibbles. So a kernel
has either half in its order by masks alone."""

E2M1 = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)
"""What three bits of NVFP4 mean; the fourth is the sign."""

DENSE_PEAK = 16
"""Bytes that `dense` holds for each number at worst, its result included."""


@attrs.frozen
class FormSpec:
    """Which form, as far as two parts must agree on it to lie in one."""

    kind: str
    """A key of KINDS."""
    group: int = 0
    """int4: columns that share a scale and a zero."""
    scale_dtype: torch.dtype = torch.float32
    """int4: as the checkpoint stores it, so that nothing is rounded."""
    wide: bool = True
    """int4: whether it may lie wide."""
    period: int = BLOCK
    """FP8 blocks: as in `Fp8Blocks`."""

    def lies_wide(self, k: int) -> bool:
        """int4 of K columns: whether it does."""
        fits = k % SPAN == 0 and self.group > 0 and self.group % BLOCK == 0
        return self.wide and fits and self.scale_dtype.itemsize == 2

    @property
    def aligned_rows(self) -> int:
        """Only behind a multiple of so many rows can another part follow in the same tensors."""
        return self.period if self.kind == FP8_BLOCKS else 1


@attrs.frozen(eq=False)
class Fp8Blocks:
    """weight * scale of its block of BLOCK x BLOCK. Rounded to float32 if the scale needs it."""

    weight: Tensor
    """[N, K] float8_e4m3fn."""
    scale: Tensor
    """[blocks of the first + N rows, ceil(K / BLOCK)] float32."""
    first: int = 0
    """Rows of the first period that lie before this part."""
    period: int = BLOCK
    """After so many rows blocks begin anew: the rows of each of several matrices of one size."""

    @classmethod
    def empty(cls, spec: FormSpec, n: int, k: int, device: torch.device) -> "Fp8Blocks":
        """Uninitialised."""
        weight = torch.empty(n, k, dtype=torch.float8_e4m3fn, device=device)
        whole, rest = divmod(n, spec.period)
        blocks = whole * -(-spec.period // BLOCK) + -(-rest // BLOCK)
        scale = torch.empty(blocks, -(-k // BLOCK), device=device)
        return cls(weight, scale, period=spec.period)

    @property
    def columns(self) -> int:
        """K."""
        return self.weight.shape[1]

    def cut(self, start: int, stop: int) -> "Fp8Blocks":
        """Rows [start, stop), as views."""
        lo, hi, period = self.first + start, self.first + stop, self.period
        blocks = -(-period // BLOCK)
        scale = self.scale[lo // period * blocks : -(-hi // period) * blocks]
        return Fp8Blocks(self.weight[start:stop], scale, lo % period, period)

    @property
    def begins_anew(self) -> bool:
        """Whether blocks do so inside: a product takes no such for one matrix."""
        return self.period % BLOCK > 0 and self.first + len(self.weight) > self.period

    def check_one(self) -> None:
        """Raises ValueError where blocks begin anew inside."""
        if self.begins_anew:
            raise ValueError(f"blocks begin anew each {self.period} rows: no one matrix")

    def dense(self, dtype: torch.dtype) -> Tensor:
        """[N, K] of `dtype`, by way of float32."""
        n, k = self.weight.shape
        rows, period = torch.arange(n, device=self.weight.device) + self.first, self.period
        blocks = rows // period * -(-period // BLOCK) + rows % period // BLOCK
        scale = self.scale[blocks].repeat_interleave(BLOCK, dim=1)[:, :k]
        return self.weight.float().mul_(scale).to(dtype)


@attrs.frozen(eq=False)
class Fp8Rows:
    """weight * scale of its row; one scale for a whole tensor stands in each of its rows."""

    weight: Tensor
    """[N, K] float8_e4m3fn."""
    scale: Tensor
    """[N] float32."""

    @classmethod
    def empty(cls, spec: FormSpec, n: int, k: int, device: torch.device) -> "Fp8Rows":
        """Uninitialised."""
        weight = torch.empty(n, k, dtype=torch.float8_e4m3fn, device=device)
        return cls(weight, torch.empty(n, device=device))

    @property
    def columns(self) -> int:
        """K."""
        return self.weight.shape[1]

    def cut(self, start: int, stop: int) -> "Fp8Rows":
        """Rows [start, stop), as views."""
        return Fp8Rows(self.weight[start:stop], self.scale[start:stop])

    def dense(self, dtype: torch.dtype) -> Tensor:
        """[N, K] of `dtype`, by way of float32."""
        return self.weight.float().mul_(self.scale[:, None]).to(dtype)


@attrs.frozen(eq=False)
class Int4:
    """(number 0..15 - zero) * scale of its group: exact in float32 where scales have 16 bits."""

    weight: Tensor
    """[N, K / NIBBLES] int32 along K, by PLACES, or wide by SPAN."""
    scale: Tensor
    """[N, K / group]."""
    zero: Tensor
    """[N, K / group], 0 to 16 (old GPTQ files store one less than they mean): uint8, or bfloat16
    where wide."""
    pairs: Tensor | None = None
    """Wide: [K / group, N] int32, of which the others are views: a scale in the upper half, its
    zero in the lower. So a step finds both of all its rows side by side."""

    @classmethod
    def empty(cls, spec: FormSpec, n: int, k: int, device: torch.device) -> "Int4":
        """Uninitialised."""
        weight = torch.empty(n, k // NIBBLES, dtype=torch.int32, device=device)
        if spec.lies_wide(k):
            pairs = torch.empty(k // spec.group, n, dtype=torch.int32, device=device)
            return cls.wide(weight, pairs, spec.scale_dtype)
        scale = torch.empty(n, k // spec.group, dtype=spec.scale_dtype, device=device)
        return cls(weight, scale, torch.empty(scale.shape, dtype=torch.uint8, device=device))

    @classmethod
    def wide(cls, weight: Tensor, pairs: Tensor, scale_dtype: torch.dtype) -> "Int4":
        """Of what a wide one takes memory for."""
        scale, zero = pairs.view(scale_dtype)[:, 1::2], pairs.view(torch.bfloat16)[:, ::2]
        return cls(weight, scale.T, zero.T, pairs)

    @property
    def columns(self) -> int:
        """K."""
        return self.weight.shape[1] * NIBBLES

    def cut(self, start: int, stop: int) -> "Int4":
        """Rows [start, stop), as views."""
        rows = slice(start, stop)
        pairs = None if self.pairs is None else self.pairs[:, rows]
        return Int4(self.weight[rows], self.scale[rows], self.zero[rows], pairs)

    def place(self, numbers: Tensor, start: int) -> None:
        """Hold rows of numbers, uint8 [R, K], from row `start` on."""
        packed = words(numbers, PLACES) if self.pairs is None else words(_spanned(numbers))
        self.weight[start : start + len(numbers)] = packed

    def numbers(self) -> Tensor:
        """uint8 [N, K]."""
        if self.pairs is None:
            return nibbles(self.weight, PLACES)
        spans = nibbles(self.weight).unflatten(-1, (-1, SPAN // 2, 2))
        return spans.transpose(-1, -2).flatten(-3)

    def dense(self, dtype: torch.dtype) -> Tensor:
        """[N, K] of `dtype`, by way of float32."""
        numbers = self.numbers().float().view(*self.scale.shape, -1)
        numbers.sub_(self.zero.float()[..., None]).mul_(self.scale.float()[..., None])
        return numbers.flatten(1).to(dtype)


def _spanned(numbers: Tensor) -> Tensor:
    """The columns of each SPAN in the order of nibbles: 0 and 128, 1 and 129, ..."""
    return numbers.unflatten(-1, (-1, 2, SPAN // 2)).transpose(-1, -2).flatten(-3)


@attrs.frozen(eq=False)
class Nvfp4:
    """E2M1 number * scale of its 16 columns, exactly; times the row's, rounded to float32.

    A scale a row, not one a tensor, lets matrices with different ones lie in one part.
    """

    weight: Tensor
    """[N, K / NIBBLES] int32 along K, by PLACES."""
    scale: Tensor
    """[N, K / NVFP4_GROUP] float8_e4m3fn."""
    row_scale: Tensor
    """[N] float32, a multiplier."""

    @classmethod
    def empty(cls, spec: FormSpec, n: int, k: int, device: torch.device) -> "Nvfp4":
        """Uninitialised."""
        weight = torch.empty(n, k // NIBBLES, dtype=torch.int32, device=device)
        scale = torch.empty(n, k // NVFP4_GROUP, dtype=torch.float8_e4m3fn, device=device)
        return cls(weight, scale, torch.empty(n, device=device))

    @property
    def columns(self) -> int:
        """K."""
        return self.weight.shape[1] * NIBBLES

    def cut(self, start: int, stop: int) -> "Nvfp4":
        """Rows [start, stop), as views."""
        rows = slice(start, stop)
        return Nvfp4(self.weight[rows], self.scale[rows], self.row_scale[rows])

    def dense(self, dtype: torch.dtype) -> Tensor:
        """[N, K] of `dtype`, by way of float32."""
        codes = nibbles(self.weight, PLACES)
        numbers = _e2m1_table(self.weight.device)[codes.int()].view(*self.scale.shape, NVFP4_GROUP)
        numbers.mul_(self.scale.float()[..., None]).mul_(self.row_scale[:, None, None])
        return numbers.flatten(1).to(dtype)


Form = Fp8Blocks | Fp8Rows | Int4 | Nvfp4

FP8_BLOCKS, FP8_ROWS, INT4, NVFP4 = "fp8 128x128", "fp8 per row", "int4", "nvfp4"

KINDS: dict[str, type[Form]] = {
    FP8_BLOCKS: Fp8Blocks,
    FP8_ROWS: Fp8Rows,
    INT4: Int4,
    NVFP4: Nvfp4,
}


def empty(spec: FormSpec, n: int, k: int, device: torch.device) -> Form:
    """An uninitialised part [n, k]."""
    return KINDS[spec.kind].empty(spec, n, k, device)


@functools.cache
def _e2m1_table(device: torch.device) -> Tensor:
    """[16] float32: what each four bits mean. Kept: making it waits for a GPU."""
    return torch.tensor([*E2M1, *(-number for number in E2M1)], device=device)


def name_of(form: Form) -> str:
    """As people call it."""
    kind = next(kind for kind, form_type in KINDS.items() if isinstance(form, form_type))
    return f"{kind} g{form.columns // form.scale.shape[1]}" if kind == INT4 else kind


IN_ORDER = tuple(range(NIBBLES))
"""The places of stored numbers: the lowest first."""


def nibbles(words: Tensor, places: tuple[int, ...] = IN_ORDER) -> Tensor:
    """int32 [..., M] -> uint8 [..., M * NIBBLES]."""
    shifted = words[..., None] >> _shifts(places, words.device)
    return shifted.bitwise_and_(15).to(torch.uint8).flatten(-2)


def words(numbers: Tensor, places: tuple[int, ...] = IN_ORDER) -> Tensor:
    """uint8 0..15 [..., M * NIBBLES] -> int32 [..., M]; the inverse of `nibbles`."""
    grouped = numbers.unflatten(-1, (-1, NIBBLES)).int()
    return (grouped << _shifts(places, numbers.device)).sum(-1, dtype=torch.int32)


@functools.cache
def _shifts(places: tuple[int, ...], device: torch.device) -> Tensor:
    """[NIBBLES] int32. Kept: making it waits for a GPU."""
    return torch.tensor([4 * place for place in places], dtype=torch.int32, device=device)


def tensors(form: Form) -> Sequence[Tensor]:
    """Everything that it takes memory for."""
    if isinstance(form, Int4) and form.pairs is not None:
        return [form.weight, form.pairs]
    values = attrs.asdict(form, recurse=False).values()
    return [value for value in values if isinstance(value, Tensor)]
