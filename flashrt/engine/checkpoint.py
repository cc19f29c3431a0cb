"""Loads a Hugging Face checkpoint into the fused tensors that the forward pass reads.

All headers are read first, and every tensor is checked by name, shape and dtype before the first
byte of a weight is read. Then the bytes are streamed in file order through small staging buffers
into their place in the preallocated tensors, so the model exists once.
"""

import hashlib
import os
import re
import threading
import zlib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import BinaryIO

import attrs
import torch
from torch import Tensor
from tqdm import tqdm

from flashrt.engine.assets import model_name
from flashrt.engine.config import ModelConfig, read_config
from flashrt.engine.headers import MTP_PREFIX, MULTIMODAL_PREFIX, StoredTensor, read_headers
from flashrt.engine.tensor_plan import EMBEDDING, HEAD, allocate, layout_of
from flashrt.engine.weights import ModelWeights
from flashrt.errors import CannotServe

PIECE_BYTES = 32 << 20
"""One read, and the size of a staging buffer. The checksum is over pieces of this size."""

READERS = 4

DTYPES = {"BF16": torch.bfloat16, "F16": torch.float16, "F32": torch.float32}

VISION_PREFIXES = ("model.visual.", "visual.")

QUANTIZED_SUFFIXES = (
    ".weight_scale_inv",
    ".weight_scale",
    ".weight_scale_2",
    ".weight_global_scale",
    ".weight_packed",
    ".weight_shape",
    ".weight_zero_point",
    ".input_scale",
    ".input_global_scale",
    ".qweight",
    ".qzeros",
    ".scales",
    ".g_idx",
    ".absmax",
    ".quant_map",
    ".SCB",
)


@attrs.frozen(eq=False)
class LoadedCheckpoint:
    """A model ready to run. `unused` says in words which parts were left out, or are not there."""

    config: ModelConfig
    weights: ModelWeights
    unused: tuple[str, ...]
    model_name: str


def load_checkpoint(
    path: str | Path,
    *,
    device: str | torch.device,
    dtype: torch.dtype,
    progress: bool = True,
) -> LoadedCheckpoint:
    """Load the checkpoint in the folder `path` onto `device`.

    `progress`: show a bar on a terminal. Raises CannotServe, naming the key, file or tensor.
    """
    folder = Path(path)
    config = read_config(folder)
    stored, unused = _select(read_headers(folder))
    layout = layout_of({tensor.key for tensor in stored})
    _, slots = allocate(config, "meta", dtype, layout)
    extra_head = _check_against_plan(stored, slots, config)
    try:
        weights, slots = allocate(config, device, dtype, layout)
    except RuntimeError as error:  # what torch raises for both devices when memory is short
        need = sum(slot.numel() for slot in slots.values()) * dtype.itemsize
        raise CannotServe(
            f"the weights need {need / 1e9:.1f} GB as {dtype} on {device}, "
            f"which cannot be allocated: {error}"
        ) from error
    name = model_name(folder)
    total = sum(tensor.size for tensor in stored)
    with tqdm(
        total=total,
        desc=f"Loading {name}",
        unit="B",
        unit_scale=True,
        disable=None if progress else True,
    ) as bar:
        loader = _Loader(slots, torch.device(device), bar)
        crcs = loader.run([tensor for tensor in stored if tensor is not extra_head])
        if extra_head is not None:
            loader.run_comparing(extra_head, slots[EMBEDDING])
    return LoadedCheckpoint(
        config, attrs.evolve(weights, checksum=_checksum(stored, crcs)), unused, name
    )


def _select(found: Sequence[StoredTensor]) -> tuple[list[StoredTensor], tuple[str, ...]]:
    """The tensors to load, and words for what is left out or not there."""
    used = [tensor for tensor in found if not tensor.name.startswith(VISION_PREFIXES)]
    notes = []
    if not any(tensor.key.startswith(MTP_PREFIX) for tensor in used):
        notes.append("no MTP weights in the checkpoint: plain decode")
    if len(used) < len(found):
        notes.append(f"vision tower ({len(found) - len(used)} tensors): images are not read")
    return used, tuple(notes)


def _check_against_plan(
    stored: Sequence[StoredTensor], slots: Mapping[str, Tensor], config: ModelConfig
) -> StoredTensor | None:
    """Refuse what does not fit. Returns a tied checkpoint's superfluous head, if it stores one."""
    extra_head = None
    for tensor in stored:
        where = f"{tensor.name} in {tensor.file.name}"
        if tensor.name.endswith(QUANTIZED_SUFFIXES):
            raise CannotServe(
                f"tensor {where} belongs to a quantized checkpoint, and quantized weights are not "
                "read; use the bfloat16, float16 or float32 release of the model"
            )
        slot = slots.get(tensor.key)
        if slot is None and tensor.key == HEAD and config.tied_embeddings:
            extra_head, slot = tensor, slots[EMBEDDING]
        if slot is None:
            raise CannotServe(
                f"tensor {where} has no place in the model that config.json describes"
            )
        _check_form(tensor, where, tuple(slot.shape))
    _check_missing({tensor.key for tensor in stored}, slots, stored)
    return extra_head


def _check_form(tensor: StoredTensor, where: str, shape: tuple[int, ...]) -> None:
    if tensor.dtype not in DTYPES:
        raise CannotServe(
            f"tensor {where} is stored as {tensor.dtype}; read are {', '.join(DTYPES)}"
        )
    if tensor.shape != shape:
        raise CannotServe(
            f"tensor {where} is {list(tensor.shape)}, but config.json makes it {list(shape)}"
        )
    count = 1
    for n in shape:
        count *= n
    if tensor.size != count * DTYPES[tensor.dtype].itemsize:
        raise CannotServe(
            f"tensor {where} has {tensor.size:,} bytes, too few or too many for "
            f"{list(shape)} {tensor.dtype}"
        )


def _check_missing(
    keys: set[str], slots: Mapping[str, Tensor], stored: Iterable[StoredTensor]
) -> None:
    missing = [key for key in slots if key not in keys]
    if not missing:
        return
    name = key = missing[0]
    if any(tensor.name.startswith(MULTIMODAL_PREFIX) for tensor in stored):
        name = re.sub(r"^model\.", MULTIMODAL_PREFIX, key)
    others = f" (and {len(missing) - 1} others)" if len(missing) > 1 else ""
    why = ""
    if key == HEAD:
        why = ", though tie_word_embeddings is false"
    elif key.startswith(MTP_PREFIX):
        why = f"; an MTP layer is complete, or {MTP_PREFIX}* is absent and nothing is drafted"
    raise CannotServe(
        f"tensor {name} {list(slots[key].shape)} is missing from the checkpoint{others}{why}"
    )


# Bytes


@attrs.frozen
class _Piece:
    """Elements [first, first + count) of one stored tensor."""

    tensor: StoredTensor
    first: int
    count: int


def _pieces(tensors: Iterable[StoredTensor]) -> Iterator[_Piece]:
    for tensor in tensors:
        itemsize = DTYPES[tensor.dtype].itemsize
        step, count = PIECE_BYTES // itemsize, tensor.size // itemsize
        for first in range(0, count, step):
            yield _Piece(tensor, first, min(step, count - first))


class _Loader:
    """Streams tensors into their slots with a few threads, each with one staging buffer."""

    def __init__(self, slots: Mapping[str, Tensor], device: torch.device, bar: tqdm) -> None:
        self._slots = slots
        self._pinned = device.type == "cuda"
        self._bar = bar
        self._bar_lock = threading.Lock()
        self._local = threading.local()

    def run(self, tensors: Sequence[StoredTensor]) -> dict[str, list[int]]:
        """Fill the slots; the CRCs of each tensor's pieces, by key."""
        crcs: dict[str, list[int]] = defaultdict(list)
        pieces = list(_pieces(tensors))
        with _Files(tensors) as files, ThreadPoolExecutor(READERS) as pool:
            results = pool.map(lambda piece: self._fill(files, piece), pieces)
            for piece, crc in zip(pieces, results, strict=True):
                crcs[piece.tensor.key].append(crc)
        return crcs

    def run_comparing(self, tensor: StoredTensor, twin: Tensor) -> None:
        """Read a tensor that must equal one that is loaded already."""
        with _Files([tensor]) as files:
            for piece in _pieces([tensor]):
                source = self._read(files, piece)
                there = twin.view(-1)[piece.first : piece.first + piece.count]
                if not torch.equal(source.to(there.device, there.dtype), there):
                    raise CannotServe(
                        f"config.json: tie_word_embeddings = true, but {tensor.name} differs from "
                        "the embedding; set it to false if the head was trained apart"
                    )

    def _fill(self, files: "_Files", piece: _Piece) -> int:
        source = self._read(files, piece)
        slot = self._slots[piece.tensor.key]
        target = slot.view(-1)[piece.first : piece.first + piece.count]
        target.copy_(source)
        low, high = torch.aminmax(target)
        if not (torch.isfinite(low) and torch.isfinite(high)):
            raise CannotServe(
                f"tensor {piece.tensor.name} in {piece.tensor.file.name} has values that are not "
                f"finite (as {target.dtype})"
            )
        return zlib.crc32(source.view(torch.uint8).numpy().data)

    def _read(self, files: "_Files", piece: _Piece) -> Tensor:
        if not hasattr(self._local, "staging"):
            self._local.staging = torch.empty(
                PIECE_BYTES, dtype=torch.uint8, pin_memory=self._pinned
            )
        dtype = DTYPES[piece.tensor.dtype]
        size = piece.count * dtype.itemsize
        staging: Tensor = self._local.staging[:size]
        offset = piece.tensor.offset + piece.first * dtype.itemsize
        files.read(piece.tensor.file, offset, staging.numpy().data)
        with self._bar_lock:
            self._bar.update(size)
        return staging.view(dtype)


class _Files:
    """The weights files, open for positioned reads from any thread."""

    def __init__(self, tensors: Iterable[StoredTensor]) -> None:
        self._paths = {tensor.file for tensor in tensors}
        self._open: dict[Path, BinaryIO] = {}

    def __enter__(self) -> "_Files":
        self._open = {path: path.open("rb", buffering=0) for path in self._paths}
        return self

    def __exit__(self, *_: object) -> None:
        for file in self._open.values():
            file.close()

    def read(self, path: Path, offset: int, into: memoryview) -> None:
        """Fill `into`; the kernel may return less than asked for at a time."""
        while into:
            got = os.preadv(self._open[path].fileno(), [into], offset)
            if got == 0:
                raise CannotServe(f"{path} ended while it was read, at byte {offset:,}")
            into, offset = into[got:], offset + got


def _checksum(stored: Iterable[StoredTensor], crcs: Mapping[str, list[int]]) -> str:
    digest = hashlib.blake2b(digest_size=16)
    for tensor in sorted(stored, key=lambda tensor: tensor.key):
        if tensor.key in crcs:
            line = (tensor.key, tensor.dtype, tensor.shape, crcs[tensor.key])
            digest.update(repr(line).encode())
    return digest.hexdigest()
