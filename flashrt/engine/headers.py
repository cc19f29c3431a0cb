"""What lies where in a checkpoint's safetensors files, from their headers alone. Knows no torch."""

import json
import struct
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import attrs

from flashrt.errors import CannotServe

HEADER_BYTES_MAX = 100 << 20

MULTIMODAL_PREFIX = "model.language_model."
MTP_PREFIX = "mtp."


@attrs.frozen
class StoredTensor:
    """One tensor as a file's header describes it. `offset` counts from the start of the file."""

    name: str
    file: Path
    dtype: str
    shape: tuple[int, ...]
    offset: int
    size: int

    @property
    def key(self) -> str:
        """The name that it would have in a text-only checkpoint."""
        if self.name.startswith(MULTIMODAL_PREFIX):
            return "model." + self.name.removeprefix(MULTIMODAL_PREFIX)
        return self.name


def read_headers(folder: Path) -> list[StoredTensor]:
    """Every tensor of every weights file, in file order. Raises CannotServe for a broken file."""
    found = [tensor for file in _weight_files(folder) for tensor in _read_header(file)]
    if not any(tensor.name.startswith(MTP_PREFIX) for tensor in found):
        found += _mtp_beside(folder, {tensor.file for tensor in found})
    by_key: dict[str, StoredTensor] = {}
    for tensor in found:
        other = by_key.setdefault(tensor.key, tensor)
        if other is not tensor:
            raise CannotServe(
                f"tensor {tensor.name} is stored twice: as {other.name} in {other.file.name} "
                f"and in {tensor.file.name}"
            )
    return found


def _mtp_beside(folder: Path, read: Collection[Path]) -> list[StoredTensor]:
    """MTP tensors in a file of their own that the index, made before it was added, leaves out."""
    files = [file for file in sorted(folder.glob("*.safetensors")) if "mtp" in file.name.lower()]
    tensors = [tensor for file in files if file not in read for tensor in _read_header(file)]
    return [tensor for tensor in tensors if tensor.name.startswith(MTP_PREFIX)]


def _weight_files(folder: Path) -> list[Path]:
    index = folder / "model.safetensors.index.json"
    if not index.is_file():
        files = sorted(folder.glob("*.safetensors"))
        if not files:
            raise CannotServe(f"{folder} has no *.safetensors file")
        return files
    try:
        names = sorted(set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values()))
    except (ValueError, KeyError, AttributeError, TypeError) as error:
        raise CannotServe(f"{index} is no index of weights: {error!r}") from error
    for name in names:
        if not (folder / name).is_file():
            raise CannotServe(
                f"{index.name} names {name}, which is not in {folder} (an unfinished download?)"
            )
    return [folder / name for name in names]


def _read_header(file: Path) -> list[StoredTensor]:
    size = file.stat().st_size
    with file.open("rb") as data:
        start = data.read(8)
        length = struct.unpack("<Q", start)[0] if len(start) == 8 else 0
        if not 0 < length <= min(HEADER_BYTES_MAX, size - 8):
            pointer = " (a Git LFS pointer: run git lfs pull)" if start == b"version " else ""
            raise CannotServe(f"{file} is not a safetensors file{pointer}")
        try:
            raw = json.loads(data.read(length))
            raw.pop("__metadata__", None)
            tensors = [_stored(name, entry, file, 8 + length) for name, entry in raw.items()]
        except (ValueError, KeyError, AttributeError, TypeError) as error:
            raise CannotServe(f"{file} has a broken header: {error!r}") from error
    for tensor in tensors:
        if tensor.offset + tensor.size > size:
            raise CannotServe(
                f"{file} is cut short: {tensor.name} should end at byte "
                f"{tensor.offset + tensor.size:,}, the file has {size:,} (an unfinished download?)"
            )
    return sorted(tensors, key=lambda tensor: tensor.offset)


def _stored(name: str, entry: Mapping[str, Any], file: Path, base: int) -> StoredTensor:
    begin, end = entry["data_offsets"]
    shape = tuple(entry["shape"])
    if not 0 <= begin <= end:
        raise ValueError(f"{name} lies at {begin}..{end}")
    return StoredTensor(name, file, str(entry["dtype"]), shape, base + begin, end - begin)
