"""Reads the bytes of a checkpoint's tensors into their places, with a few threads.

In file order, through small staging buffers. A tensor whose layout in memory is another goes whole
to the device first, so at most READERS tensors exist beside the model.
"""

import os
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

from flashrt.engine.headers import StoredTensor
from flashrt.engine.repack import Staged, Target
from flashrt.errors import CannotServe

PIECE_BYTES = 32 << 20
"""One read, and the size of a staging buffer. The checksum is over pieces of this size."""

READERS = 4

DTYPES = {
    "BF16": torch.bfloat16,
    "F16": torch.float16,
    "F32": torch.float32,
    "F8_E4M3": torch.float8_e4m3fn,
    "U8": torch.uint8,
    "I32": torch.int32,
    "I64": torch.int64,
}
"""What any tensor that is read may be stored as."""


@attrs.frozen
class Piece:
    """Elements [first, first + count) of one stored tensor."""

    tensor: StoredTensor
    first: int
    count: int


def pieces_of(tensor: StoredTensor) -> Iterator[Piece]:
    """In order."""
    itemsize = DTYPES[tensor.dtype].itemsize
    step, count = PIECE_BYTES // itemsize, tensor.size // itemsize
    for first in range(0, count, step):
        yield Piece(tensor, first, min(step, count - first))


class Stream:
    """Fills targets, by the key of the stored tensor that each is for."""

    def __init__(self, targets: Mapping[str, Target], device: torch.device, bar: tqdm) -> None:
        self._targets = targets
        self._device = device
        self._pinned = device.type == "cuda"
        self._bar = bar
        self._bar_lock = threading.Lock()
        self._local = threading.local()

    def run(self, tensors: Sequence[StoredTensor]) -> dict[str, list[int]]:
        """Fill them; the CRCs of each tensor's pieces, by key. Raises CannotServe."""
        crcs: dict[str, list[int]] = defaultdict(list)
        items = list(self._items(tensors))
        with _Files(tensors) as files, ThreadPoolExecutor(READERS) as pool:
            results = pool.map(lambda item: self._read_item(files, item), items)
            for (piece, *_), found in zip(items, results, strict=True):
                crcs[piece.tensor.key] += found
        return crcs

    def run_comparing(self, tensor: StoredTensor, twin: Tensor) -> None:
        """Read a tensor that must equal one that is loaded already."""
        with _Files([tensor]) as files:
            for piece in pieces_of(tensor):
                source = self._read(files, piece)
                there = twin.view(-1)[piece.first : piece.first + piece.count]
                if not torch.equal(source.to(there.device, there.dtype), there):
                    raise CannotServe(
                        f"config.json: tie_word_embeddings = true, but {tensor.name} differs from "
                        "the embedding; set it to false if the head was trained apart"
                    )

    def _items(self, tensors: Iterable[StoredTensor]) -> Iterator[list[Piece]]:
        """What one thread does at a time: a piece, or all of a tensor that is laid out anew."""
        for tensor in tensors:
            pieces = list(pieces_of(tensor))
            if isinstance(self._targets[tensor.key], Staged):
                yield pieces
            else:
                yield from ([piece] for piece in pieces)

    def _read_item(self, files: "_Files", pieces: Sequence[Piece]) -> list[int]:
        tensor = pieces[0].tensor
        target = self._targets[tensor.key]
        if isinstance(target, Tensor):
            return [self._fill(files, piece, target) for piece in pieces]
        whole = torch.empty(tensor.shape, dtype=DTYPES[tensor.dtype], device=self._device)
        crcs = [self._fill(files, piece, whole) for piece in pieces]
        try:
            target.place(whole)
        except ValueError as odd:
            raise CannotServe(f"tensor {tensor.name} in {tensor.file.name} {odd}") from odd
        return crcs

    def _fill(self, files: "_Files", piece: Piece, whole: Tensor) -> int:
        source = self._read(files, piece)
        target = whole.view(-1)[piece.first : piece.first + piece.count]
        target.copy_(source)
        if not _is_finite(target):
            raise CannotServe(
                f"tensor {piece.tensor.name} in {piece.tensor.file.name} has values that are not "
                f"finite (as {target.dtype})"
            )
        return zlib.crc32(source.view(torch.uint8).numpy().data)

    def _read(self, files: "_Files", piece: Piece) -> Tensor:
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


def _is_finite(values: Tensor) -> bool:
    if values.dtype == torch.float8_e4m3fn:  # has no infinity, and one not-a-number of each sign
        return not bool(((values.view(torch.uint8) & 0x7F) == 0x7F).any())
    if not values.dtype.is_floating_point:
        return True
    low, high = torch.aminmax(values)
    return bool(torch.isfinite(low) and torch.isfinite(high))


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
