"""Loads a Hugging Face checkpoint into the fused tensors that the forward pass reads.

All headers are read first, and every tensor is checked by name, shape and dtype before the first
byte of a weight is read. Then the bytes are streamed in file order through small staging buffers
into their place in the preallocated tensors, so the model exists once.
"""

import hashlib
import math
import re
from collections.abc import Iterable, Mapping
from pathlib import Path

import attrs
import torch
from torch import Tensor
from tqdm import tqdm

from flashrt.engine.assets import model_name
from flashrt.engine.claims import OLD_OFFSET, disagreements, read_claims
from flashrt.engine.config import ModelConfig, read_config
from flashrt.engine.headers import MTP_PREFIX, MULTIMODAL_PREFIX, StoredTensor, read_headers
from flashrt.engine.repack import Target, targets
from flashrt.engine.spellings import READ, Stored, sort_stored, where
from flashrt.engine.streaming import DTYPES, Stream
from flashrt.engine.tensor_plan import EMBEDDING, HEAD, Allocated, Layout, allocate_all, layout_of
from flashrt.engine.weights import ModelWeights
from flashrt.errors import CannotServe

PLAIN_DTYPES = ("BF16", "F16", "F32")

VISION_PREFIXES = ("model.visual.", "visual.")


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
    checkpoint = opened(folder)
    config, stored, layout = checkpoint.config, checkpoint.stored, checkpoint.layout
    extra_head = check_against_plan(checkpoint, allocate_all(config, "meta", dtype, layout))
    try:
        allocated = allocate_all(config, device, dtype, layout)
    except RuntimeError as error:  # what torch raises for both devices when memory is short
        need = allocate_all(config, "meta", dtype, layout).nbytes
        raise CannotServe(
            f"the weights need {need / 1e9:.1f} GB as {dtype} on {device}, "
            f"which cannot be allocated: {error}"
        ) from error
    name = model_name(folder)
    places = _targets(stored, allocated)
    tensors = [tensor for tensor in checkpoint.read if tensor.key in places]
    with tqdm(
        total=sum(tensor.size for tensor in checkpoint.read),
        desc=f"Loading {name}",
        unit="B",
        unit_scale=True,
        disable=None if progress else True,
    ) as bar:
        stream = Stream(places, torch.device(device), bar)
        crcs = stream.run(tensors)
        if extra_head is not None:
            stream.run_comparing(extra_head, allocated.slots[EMBEDDING])
    weights = attrs.evolve(allocated.weights, checksum=_checksum(stored, tensors, crcs))
    return LoadedCheckpoint(config, weights, checkpoint.notes, name)


@attrs.frozen(eq=False)
class OpenedCheckpoint:
    """What a checkpoint says of itself, before any weight is read."""

    config: ModelConfig
    stored: Stored
    layout: Layout
    read: tuple[StoredTensor, ...]
    """Every tensor that is read, in file order."""
    notes: tuple[str, ...]
    """In words, which parts are left out, are not there, or are not what config.json says."""


def opened(folder: Path) -> OpenedCheckpoint:
    """The checkpoint in `folder`, from its headers. Raises CannotServe, naming key or tensor."""
    config, found = read_config(folder), read_headers(folder)
    used = [tensor for tensor in found if not tensor.name.startswith(VISION_PREFIXES)]
    claims = read_claims(folder)
    stored = sort_stored(used, claims.zero_offset if claims else OLD_OFFSET)
    notes = []
    if not any(key.startswith(MTP_PREFIX) for key in stored.keys):
        notes.append("no MTP weights in the checkpoint: plain decode")
    if len(used) < len(found):
        notes.append(f"vision tower ({len(found) - len(used)} tensors): images are not read")
    if stored.of_activations:
        count = len(stored.of_activations)
        notes.append(f"scales of activations ({count} tensors): only weights are quantized here")
    if odd := disagreements(claims, (t.key for t in stored.plain), tuple(stored.matrices)):
        notes.append(f"{odd}: what is stored counts")
    aside = {tensor.key for tensor in stored.of_activations}
    read = tuple(tensor for tensor in used if tensor.key not in aside)
    layout = layout_of(stored.keys, stored.matrices)
    return OpenedCheckpoint(config, stored, layout, read, tuple(notes))


def _targets(stored: Stored, allocated: Allocated) -> dict[str, Target]:
    """Where each stored tensor goes, by its own key."""
    places: dict[str, Target] = dict(allocated.slots)
    for key, matrix in stored.matrices.items():
        places |= {tensor.key: at for tensor, at in targets(matrix, allocated.forms[key])}
    return places


def check_against_plan(checkpoint: OpenedCheckpoint, plan: Allocated) -> StoredTensor | None:
    """Refuse what does not fit. Returns a tied checkpoint's superfluous head, if it stores one."""
    extra_head = None
    stored, slots = checkpoint.stored, plan.slots
    for tensor in stored.plain:
        slot = slots.get(tensor.key)
        if slot is None and tensor.key == HEAD and checkpoint.config.tied_embeddings:
            extra_head, slot = tensor, slots[EMBEDDING]
        if slot is None:
            raise CannotServe(
                f"{where(tensor)} has no place in the model that config.json describes"
            )
        _check_form(tensor, tuple(slot.shape))
    for key, matrix in stored.matrices.items():
        if key not in plan.forms:
            kind = "is read in plain numbers only" if key in slots else "has no place in the model"
            raise CannotServe(
                f"{where(matrix.data)} is {matrix.spelling.name}, but {key} {kind}; {READ}"
            )
        for tensor in matrix.tensors.values():
            _check_size(tensor)
    _check_missing(stored, slots)
    return extra_head


def _check_form(tensor: StoredTensor, shape: tuple[int, ...]) -> None:
    if tensor.dtype not in PLAIN_DTYPES:
        raise CannotServe(
            f"{where(tensor)} is stored as {tensor.dtype}; read are {', '.join(PLAIN_DTYPES)}, and "
            "FP8, int4 and NVFP4 with their scales"
        )
    if tensor.shape != shape:
        raise CannotServe(
            f"{where(tensor)} is {list(tensor.shape)}, but config.json makes it {list(shape)}"
        )
    _check_size(tensor)


def _check_size(tensor: StoredTensor) -> None:
    count = math.prod(tensor.shape)
    if tensor.size != count * DTYPES[tensor.dtype].itemsize:
        raise CannotServe(
            f"{where(tensor)} has {tensor.size:,} bytes, too few or too many for "
            f"{list(tensor.shape)} {tensor.dtype}"
        )


def _check_missing(stored: Stored, slots: Mapping[str, Tensor]) -> None:
    missing = [key for key in slots if key not in stored.keys]
    if not missing:
        return
    name = key = missing[0]
    if any(tensor.name.startswith(MULTIMODAL_PREFIX) for tensor in stored.plain):
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


def _checksum(
    stored: Stored, tensors: Iterable[StoredTensor], crcs: Mapping[str, list[int]]
) -> str:
    """Of what is stored and of what it means, wherever it lies."""
    digest = hashlib.blake2b(digest_size=16)
    for tensor in sorted(tensors, key=lambda tensor: tensor.key):
        line = (tensor.key, tensor.dtype, tensor.shape, crcs[tensor.key])
        digest.update(repr(line).encode())
    for key, matrix in sorted(stored.matrices.items()):
        if matrix.zero_offset:  # the same bytes with another meaning
            digest.update(repr((key, matrix.zero_offset)).encode())
    return digest.hexdigest()
