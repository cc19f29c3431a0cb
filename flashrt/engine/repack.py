"""From what a quantizer has stored to a form in memory: checked from the header, then filled.

`spec_of` knows shapes and dtypes only, so everything that is odd about them is told before a byte
is read. `targets` says where each stored tensor goes: straight into its place where the layout is
the same, else whole to a function, on the device, one tensor at a time.
"""

from collections.abc import Callable, Iterator

import attrs
import torch
from torch import Tensor

from flashrt.engine.forms import (
    BLOCK,
    FP8_BLOCKS,
    FP8_ROWS,
    INT4,
    NIBBLES,
    NVFP4,
    NVFP4_GROUP,
    Form,
    FormSpec,
    Fp8Blocks,
    Fp8Rows,
    Int4,
    Nvfp4,
    nibbles,
)
from flashrt.engine.headers import StoredTensor
from flashrt.engine.spellings import (
    FLOATS,
    FP8,
    FP8_INVERSE,
    INT4_PACKED,
    NVFP4_DIVISOR,
    NVFP4_MULTIPLIER,
    READ,
    StoredMatrix,
    where,
)
from flashrt.errors import CannotServe

GROUP_STEP = 16
"""int4: a group is a multiple of so many columns, so that a kernel's step never meets two."""

AWQ_ORDER = (0, 2, 4, 6, 1, 3, 5, 7)
"""Which of eight neighbouring rows of N each nibble of an AWQ word holds, the lowest first."""

SLICE_WORDS = 1 << 19
"""Words that are repacked at a time: what it takes beside the stored tensor stays below 64 MiB."""

SCALE_DTYPES = {"BF16": torch.bfloat16, "F16": torch.float16, "F32": torch.float32}

Shape = tuple[int, ...]


@attrs.frozen
class Staged:
    """A stored tensor that is read whole, then handed to `place`.

    `place` raises ValueError, saying what is odd about the values.
    """

    place: Callable[[Tensor], None]


Target = Tensor | Staged


# -- headers ---------------------------------------------------------------------------------------


def spec_of(stored: StoredMatrix, n: int, k: int) -> FormSpec:
    """The form of a matrix [n, k] that is stored like this. Raises CannotServe by tensor."""
    if stored.spelling in (FP8, FP8_INVERSE):
        return _fp8(stored, n, k)
    if stored.spelling in (NVFP4_DIVISOR, NVFP4_MULTIPLIER):
        return _nvfp4(stored, n, k)
    if stored.spelling is INT4_PACKED:
        return _int4_packed(stored, n, k)
    return _int4_qweight(stored, n, k)


def _fp8(stored: StoredMatrix, n: int, k: int) -> FormSpec:
    _expect(stored, ".weight", ("F8_E4M3",), (n, k))
    blocks = -(-n // BLOCK), -(-k // BLOCK)
    by_block = (blocks, (blocks[0], 1, blocks[1], 1))
    by_row: tuple[Shape, ...] = ((n,), (n, 1), (), (1,), (1, 1))
    scale = _expect(stored, stored.spelling.needed[0], FLOATS, *by_block, *by_row)
    return FormSpec(FP8_BLOCKS if scale.shape in by_block else FP8_ROWS)


def _nvfp4(stored: StoredMatrix, n: int, k: int) -> FormSpec:
    data, scale, whole = (stored.spelling.data, *stored.spelling.needed)
    _divides(stored.data, NVFP4_GROUP, k, "a row")
    _expect(stored, data, ("U8",), (n, k // 2))
    _expect(stored, scale, ("F8_E4M3",), (n, k // NVFP4_GROUP))
    _expect(stored, whole, ("F32",), (), (1,))
    _expect_shape_tensor(stored)
    return FormSpec(NVFP4)


def _int4_packed(stored: StoredMatrix, n: int, k: int) -> FormSpec:
    _divides(stored.data, GROUP_STEP, k, "a row")
    _expect(stored, ".weight_packed", ("I32",), (n, k // NIBBLES))
    scale = stored.tensors[".weight_scale"]
    groups = scale.shape[1] if len(scale.shape) == 2 else 0
    spec = _int4(scale, groups, k)
    _expect(stored, ".weight_scale", FLOATS, (n, groups))
    if ".weight_zero_point" in stored.tensors:
        _expect(stored, ".weight_zero_point", ("I32",), (-(-n // NIBBLES), groups))
    if ".weight_g_idx" in stored.tensors:
        _expect(stored, ".weight_g_idx", ("I32", "I64"), (k,))
    _expect_shape_tensor(stored)
    return spec


def _int4_qweight(stored: StoredMatrix, n: int, k: int) -> FormSpec:
    _divides(stored.data, GROUP_STEP, k, "a row")
    _divides(stored.data, NIBBLES, n, "a column")
    _expect(stored, ".qweight", ("I32",), (k // NIBBLES, n), (k, n // NIBBLES))
    scale = stored.tensors[".scales"]
    groups = scale.shape[0] if len(scale.shape) == 2 else 0
    spec = _int4(scale, groups, k)
    _expect(stored, ".scales", FLOATS, (groups, n))
    _expect(stored, ".qzeros", ("I32",), (groups, n // NIBBLES))
    if ".g_idx" in stored.tensors:
        _expect(stored, ".g_idx", ("I32", "I64"), (k,))
    return spec


def _int4(scale: StoredTensor, groups: int, k: int) -> FormSpec:
    """From the number of scales along K."""
    if groups == 0 or k % groups or k // groups % GROUP_STEP:
        raise CannotServe(
            f"{where(scale)} is {list(scale.shape)}: {k} columns do not fall into equal groups of "
            f"a multiple of {GROUP_STEP}; use a release with groups of 32, 64 or 128"
        )
    _check_dtype(scale, FLOATS)
    return FormSpec(INT4, k // groups, SCALE_DTYPES[scale.dtype])


def _expect_shape_tensor(stored: StoredMatrix) -> None:
    if ".weight_shape" in stored.tensors:
        _expect(stored, ".weight_shape", ("I32", "I64"), (2,))


def _expect(
    stored: StoredMatrix, ending: str, dtypes: tuple[str, ...], *shapes: Shape
) -> StoredTensor:
    tensor = stored.tensors[ending]
    _check_dtype(tensor, dtypes)
    if tensor.shape not in shapes:
        fitting = " or ".join(str(list(shape)) for shape in shapes)
        raise CannotServe(
            f"{where(tensor)} is {list(tensor.shape)}, but config.json and "
            f"{stored.spelling.name} make it {fitting}; {READ}"
        )
    return tensor


def _check_dtype(tensor: StoredTensor, dtypes: tuple[str, ...]) -> None:
    if tensor.dtype not in dtypes:
        raise CannotServe(
            f"{where(tensor)} is stored as {tensor.dtype}, but {' or '.join(dtypes)} is what it "
            f"should be; {READ}"
        )


def _divides(tensor: StoredTensor, step: int, count: int, what: str) -> None:
    if count % step:
        raise CannotServe(
            f"{where(tensor)} stands for a matrix with {count} numbers in {what}, which is no "
            f"multiple of {step}: config.json describes another model"
        )


# -- values ----------------------------------------------------------------------------------------


def targets(stored: StoredMatrix, form: Form) -> Iterator[tuple[StoredTensor, Target]]:
    """Where each tensor of `stored` goes, so that `form` holds it. What no tensor holds is there
    at once."""
    for ending, target in _targets(stored, form).items():
        if ending in stored.tensors:
            yield stored.tensors[ending], target


def _targets(stored: StoredMatrix, form: Form) -> dict[str, Target]:
    """By the end of the tensor's name."""
    data, scale = stored.spelling.data, stored.spelling.needed[0]
    match form:
        case Fp8Blocks():
            return {data: form.weight, scale: form.scale}
        case Fp8Rows():
            return {data: form.weight, scale: Staged(lambda t: _fill(form.scale, t))}
        case Nvfp4():
            divides = stored.spelling is NVFP4_DIVISOR
            whole = Staged(lambda t: _fill_whole_scale(form.row_scale, t, divides))
            shape = Staged(lambda t: _check_shape(t, form))
            last = stored.spelling.needed[1]
            numbers = Staged(lambda t: _place_words(form.weight, t.view(torch.int32)))
            return {data: numbers, scale: form.scale, last: whole, ".weight_shape": shape}
        case Int4() if stored.spelling is INT4_PACKED:
            return _packed_targets(form)
        case Int4():
            return _qweight_targets(stored, form)


def _packed_targets(form: Int4) -> dict[str, Target]:
    form.zero.fill_(8)  # symmetric, unless zeros are stored
    return {
        ".weight_packed": Staged(lambda t: _place_int4(form, t)),
        ".weight_scale": Staged(lambda t: _copy(form.scale, t)),
        # The only tensor that is packed along N.
        ".weight_zero_point": Staged(
            lambda t: _copy(form.zero, nibbles(t.T.contiguous()).T[: len(form.zero)])
        ),
        ".weight_shape": Staged(lambda t: _check_shape(t, form)),
        ".weight_g_idx": Staged(lambda t: _check_order(t, form)),
    }


def _qweight_targets(stored: StoredMatrix, form: Int4) -> dict[str, Target]:
    awq = stored.data.shape[0] == form.columns
    offset = stored.zero_offset

    def place_zeros(packed: Tensor) -> None:
        zeros = _awq_rows(packed) if awq else nibbles(packed)
        form.zero.copy_(zeros.T if awq else zeros.T + offset)

    def place_awq(packed: Tensor) -> None:
        """Slice by slice of rows: unpacked they take eight times as much."""
        step = max(1, SLICE_WORDS // len(packed))
        for at in range(0, packed.shape[1], step):
            rows = _awq_rows(packed[:, at : at + step]).T.contiguous()
            form.place(rows, at * NIBBLES)

    return {
        ".qweight": Staged(place_awq if awq else lambda t: _place_int4(form, t.T)),
        ".qzeros": Staged(place_zeros),
        ".scales": Staged(lambda t: _copy(form.scale, t.T)),
        ".g_idx": Staged(lambda t: _check_order(t, form)),
    }


def _awq_rows(packed: Tensor) -> Tensor:
    """int32 [R, N / 8] in AWQ's order -> uint8 [R, N] in order."""
    mixed = nibbles(packed).unflatten(-1, (-1, NIBBLES))
    ordered = torch.empty_like(mixed)
    ordered[..., list(AWQ_ORDER)] = mixed
    return ordered.flatten(-2)


def _place_words(weight: Tensor, stored: Tensor) -> None:
    """Words of columns in order [N, K / NIBBLES] as a form has them; slice by slice of rows."""
    step = max(1, SLICE_WORDS // stored.shape[1])
    for rows, target in zip(stored.split(step), weight.split(step), strict=True):
        low, high = _every_other(rows), _every_other(rows >> 4)
        target.copy_(low.bitwise_or_(high << 16))


def _place_int4(form: Int4, stored: Tensor) -> None:
    """Words of columns in order [N, K / NIBBLES]."""
    if form.pairs is None:
        _place_words(form.weight, stored)
        return
    step = max(1, SLICE_WORDS // stored.shape[1])
    for start in range(0, len(stored), step):
        form.place(nibbles(stored[start : start + step]), start)


def _every_other(rows: Tensor) -> Tensor:
    """Each word's nibbles 0, 2, 4 and 6 in its lower half; zeros above."""
    found = rows & 0x0F0F0F0F
    found = (found | found >> 4) & 0x00FF00FF
    return (found | found >> 8) & 0xFFFF


def _copy(target: Tensor, source: Tensor) -> None:
    target.copy_(source)


def _fill(scale: Tensor, stored: Tensor) -> None:
    """One for each row, or one for all."""
    scale.copy_(stored.flatten().float().expand(len(scale)))


def _fill_whole_scale(row_scale: Tensor, stored: Tensor, divides: bool) -> None:
    value = stored.flatten().float()
    if not value > 0:
        raise ValueError(f"is {float(value)}; a scale above 0 is needed")
    _fill(row_scale, 1 / value if divides else value)


def _check_shape(stored: Tensor, form: Form) -> None:
    n, k = len(form.weight), form.columns
    if stored.tolist() != [n, k]:
        raise ValueError(f"says {stored.tolist()}, but config.json makes the matrix {[n, k]}")


def _check_order(stored: Tensor, form: Int4) -> None:
    """Whether columns are grouped as they lie."""
    k = form.columns
    group = k // form.scale.shape[1]
    plain = torch.arange(k, device=stored.device) // group
    if not torch.equal(stored.long(), plain):
        raise ValueError(
            f"groups columns in another order than they lie in (desc_act or actorder), not {group} "
            "neighbours each; use a release that was made without it"
        )
