"""How quantizers write one matrix into a checkpoint: which tensors stand for it, and what is odd.

Decided tensor by tensor from the files' headers, never from the lists in config.json: those are
wrong in many published checkpoints. Knows no torch.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

import attrs

from flashrt.engine.headers import StoredTensor
from flashrt.errors import CannotServe

READ = "read are FP8 (e4m3), int4 (compressed-tensors, GPTQ, AWQ), NVFP4, and BF16, F16, F32"
"""The way out, in every refusal."""

FLOATS = ("BF16", "F16", "F32")


@attrs.frozen
class Spelling:
    """The tensors that one quantizer writes for a matrix, by the ends of their names."""

    name: str
    data: str
    """What holds the numbers; with its dtype it tells the spelling."""
    dtype: str
    needed: tuple[str, ...]
    optional: tuple[str, ...] = ()


FP8_INVERSE = Spelling("FP8", ".weight", "F8_E4M3", (".weight_scale_inv",))
FP8 = Spelling("FP8", ".weight", "F8_E4M3", (".weight_scale",))
NVFP4_DIVISOR = Spelling(
    "NVFP4 of compressed-tensors",
    ".weight_packed",
    "U8",
    (".weight_scale", ".weight_global_scale"),
    (".weight_shape",),
)
NVFP4_MULTIPLIER = Spelling(
    "NVFP4 of ModelOpt", ".weight", "U8", (".weight_scale", ".weight_scale_2")
)
INT4_PACKED = Spelling(
    "int4 of compressed-tensors",
    ".weight_packed",
    "I32",
    (".weight_scale",),
    (".weight_zero_point", ".weight_shape", ".weight_g_idx"),
)
INT4_QWEIGHT = Spelling("int4", ".qweight", "I32", (".qzeros", ".scales"), (".g_idx",))
"""Of GPTQ or AWQ: the shape of `qweight` tells which."""

SPELLINGS = (FP8_INVERSE, FP8, NVFP4_DIVISOR, NVFP4_MULTIPLIER, INT4_PACKED, INT4_QWEIGHT)

COMPANIONS = frozenset(s for one in SPELLINGS for s in (*one.needed, *one.optional))
"""Ends of names of tensors that mean nothing without the numbers that they go with."""

DATA = (".weight_packed", ".qweight")
"""Ends of names of numbers that no plain checkpoint has."""

OF_ACTIVATIONS = (
    ".input_scale",
    ".input_global_scale",
    ".input_zero_point",
    ".output_scale",
    ".q_scale",
    ".k_scale",
    ".v_scale",
)
"""Of activations and caches, which are not quantized here: left out."""

FOREIGN: Mapping[str, str] = {
    ".absmax": "bitsandbytes",
    ".quant_map": "bitsandbytes",
    ".nested_absmax": "bitsandbytes",
    ".nested_quant_map": "bitsandbytes",
    ".bitsandbytes__nf4": "bitsandbytes",
    ".bitsandbytes__fp4": "bitsandbytes",
    ".SCB": "bitsandbytes",
    ".weight_format": "bitsandbytes",
    ".pre_quant_scale": "ModelOpt's AWQ (scaled activations)",
    ".bitmask": "compressed-tensors' sparsity",
    ".codebooks": "AQLM",
    ".W_q": "HQQ",
    ".q_weight": "EXL2",
    ".trellis": "EXL3",
    ".Qidxs": "QuIP#",
}
"""Ends of names that give a quantization away which is not read, and its name."""


@attrs.frozen
class StoredMatrix:
    """A quantized matrix as it is stored."""

    key: str
    """Of its plain spelling: NAME.weight."""
    spelling: Spelling
    tensors: Mapping[str, StoredTensor]
    """By the end of their names, in the order of the spelling."""
    zero_offset: int = 0
    """int4 of GPTQ: how much less than it means a stored zero is."""

    @property
    def data(self) -> StoredTensor:
        """The numbers."""
        return self.tensors[self.spelling.data]

    @property
    def size(self) -> int:
        """Bytes of all its tensors."""
        return sum(tensor.size for tensor in self.tensors.values())


@attrs.frozen
class Stored:
    """What a checkpoint holds of its model, sorted."""

    plain: tuple[StoredTensor, ...]
    matrices: Mapping[str, StoredMatrix]
    """By key."""
    of_activations: tuple[StoredTensor, ...]
    """Scales that are not read."""

    @property
    def keys(self) -> frozenset[str]:
        """Of everything that is read, a quantized matrix by its plain name."""
        return frozenset((*(tensor.key for tensor in self.plain), *self.matrices))


def where(tensor: StoredTensor) -> str:
    """How a tensor is named in a refusal."""
    return f"tensor {tensor.name} in {tensor.file.name}"


def sort_stored(found: Iterable[StoredTensor], zero_offset: int = 0) -> Stored:
    """Which tensors are numbers by themselves, and which stand for a matrix together.

    Raises CannotServe, naming a tensor, for an unknown quantizer or an incomplete matrix.
    """
    plain, aside = [], []
    groups: dict[str, dict[str, StoredTensor]] = defaultdict(dict)
    for tensor in found:
        _refuse_foreign(tensor)
        base, ending = _split(tensor.key)
        if ending in OF_ACTIVATIONS:
            aside.append(tensor)
        elif ending in COMPANIONS or ending in DATA or _is_packed_data(tensor, ending):
            groups[base][ending] = tensor
        else:
            plain.append(tensor)
    by_key = {tensor.key: tensor for tensor in plain}
    matrices = {}
    for base, tensors in groups.items():
        key = base + ".weight"
        matrices[key] = _matrix(key, tensors, by_key.get(key), zero_offset)
    return Stored(tuple(plain), matrices, tuple(aside))


def _split(key: str) -> tuple[str, str]:
    base, dot, ending = key.rpartition(".")
    return base, dot + ending


def _is_packed_data(tensor: StoredTensor, ending: str) -> bool:
    """`NAME.weight` of a dtype that needs a scale."""
    kinds = {(spelling.data, spelling.dtype) for spelling in SPELLINGS}
    return (ending, tensor.dtype) in kinds


def _refuse_foreign(tensor: StoredTensor) -> None:
    for ending, quantizer in FOREIGN.items():
        if tensor.name.endswith(ending):
            raise CannotServe(
                f"{where(tensor)} belongs to a quantized checkpoint of {quantizer}, which is not "
                f"read; {READ}"
            )


def _matrix(
    key: str, tensors: Mapping[str, StoredTensor], plain: StoredTensor | None, zero_offset: int
) -> StoredMatrix:
    fitting = [one for one in SPELLINGS if _is_data(tensors.get(one.data), one)]
    complete = [one for one in fitting if all(ending in tensors for ending in one.needed)]
    if not fitting:
        raise _without_numbers(tensors, plain)
    if not complete:
        raise _incomplete(fitting, tensors)
    spelling = complete[0]
    allowed = (spelling.data, *spelling.needed, *spelling.optional)
    others = [tensor for ending, tensor in tensors.items() if ending not in allowed]
    if other := next(iter([*others, *([plain] if plain else [])]), None):
        raise CannotServe(
            f"{where(other)} stands beside {tensors[spelling.data].name}, which is "
            f"{spelling.name} without it: one of them is left over; {READ}"
        )
    known = {ending: tensors[ending] for ending in allowed if ending in tensors}
    return StoredMatrix(key, spelling, known, zero_offset if spelling is INT4_QWEIGHT else 0)


def _is_data(tensor: StoredTensor | None, spelling: Spelling) -> bool:
    return tensor is not None and tensor.dtype == spelling.dtype


def _without_numbers(
    tensors: Mapping[str, StoredTensor], plain: StoredTensor | None
) -> CannotServe:
    """Scales and the like of nothing, or beside something else than they are for."""
    for ending in DATA:
        if odd := tensors.get(ending):
            return CannotServe(f"{where(odd)} is {odd.dtype}, as no known quantizer writes; {READ}")
    first = next(iter(tensors.values()))
    base = _split(first.name)[0]
    beside = f"{plain.name} is {plain.dtype}" if plain else f"there is no quantized {base}.weight"
    return CannotServe(
        f"{where(first)} belongs to a quantized matrix, but {beside}: a pack that was converted in "
        f"part, or not downloaded whole; {READ}"
    )


def _is_mxfp4(tensors: Mapping[str, StoredTensor]) -> bool:
    """Powers of two for scales, one for 32 numbers, and nothing for the whole."""
    scale = tensors.get(".weight_scale")
    return ".weight_packed" in tensors and scale is not None and scale.dtype == "U8"


def _incomplete(fitting: Sequence[Spelling], tensors: Mapping[str, StoredTensor]) -> CannotServe:
    """Numbers whose scale is missing, under each name that it may have."""
    if _is_mxfp4(tensors):
        return CannotServe(
            f"{where(tensors['.weight_packed'])} is MXFP4, which is not read; {READ}"
        )
    missing = [next(ending for ending in one.needed if ending not in tensors) for one in fitting]
    data = next(tensors[one.data] for one in fitting)
    base = _split(data.name)[0]
    names = " or ".join(base + ending for ending in missing)
    return CannotServe(
        f"{where(data)} is {data.dtype} and needs {names}, which is missing; download the "
        f"checkpoint again, or use another release of the model: {READ}"
    )
