"""Quantized checkpoints, written tensor by tensor, and the plain model that they mean."""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor
from transformers import PreTrainedModel

from flashrt.engine.hybrid import HybridEngine
from flashrt.engine.matrix import Experts, Matrix, dense
from tests.engine.checkpoints import WEIGHTS
from tests.engine.drafted import MtpReference
from tests.engine.models import Shape, reference
from tests.engine.packers import PACKERS, Pack, Packer, fits

MATRIX = re.compile(r"(?:_proj|in_proj_\w+|fc|lm_head)\.weight$")
"""What a quantizer may turn to."""


def matrices(tensors: Mapping[str, Tensor]) -> list[str]:
    """Names of those of a checkpoint, in order."""
    return [name for name, tensor in tensors.items() if MATRIX.search(name) and tensor.dim() == 2]


def rewritten(
    folder: Path, packers: Mapping[str, str | Packer], *, shards: int = 1, claims: Any = None
) -> dict[str, Tensor]:
    """Rewrite a plain checkpoint's file with some matrices packed; what the whole means.

    `shards`: files that the tensors are dealt out to. `claims`: config.json's quantization_config.
    """
    tensors = load_file(folder / WEIGHTS)
    stored, meant = {}, {}
    for name, tensor in tensors.items():
        pack = Pack({"weight": tensor}, tensor)
        if packer := packers.get(name):
            pack = (PACKERS[packer] if isinstance(packer, str) else packer)(tensor.float())
            base = name.removesuffix("weight")
            stored |= {base + ending: part for ending, part in pack.tensors.items()}
        else:
            stored[name] = tensor
        meant[name] = pack.dense
    written(folder, stored, shards=shards)
    if claims is not None:
        config = json.loads((folder / "config.json").read_text())
        (folder / "config.json").write_text(json.dumps({**config, "quantization_config": claims}))
    return meant


def written(folder: Path, tensors: Mapping[str, Tensor], *, shards: int = 1) -> None:
    """Dealt out to files in turn, so that a matrix and its scales lie in different ones."""
    (folder / WEIGHTS).unlink(missing_ok=True)
    names = list(tensors)
    for shard in range(shards):
        part = {name: tensors[name].contiguous() for name in names[shard::shards]}
        file = WEIGHTS if shards == 1 else f"model-{shard + 1:05}-of-{shards:05}.safetensors"
        save_file(part, folder / file)


def everywhere(tensors: Mapping[str, Tensor], packer: str) -> dict[str, str]:
    """One packer for all matrices that it fits."""
    return {name: packer for name in matrices(tensors) if fits(packer, *tensors[name].shape)}


def model_of(
    folder: Path, shape: Shape, packer: str, *, mtp: str | None = "plain", claims: Any = None
) -> PreTrainedModel:
    """Write a packed checkpoint of a random model to `folder`; the plain model that it means.

    `mtp`: how its MTP layer is packed; None: it has none.
    """
    plain, packed = folder / "plain", folder / "packed"
    model = reference(shape)
    model.save_pretrained(packed)
    if mtp:
        parts = MtpReference(model).state_dict()
        named = {"mtp." + re.sub("^layer", "layers.0", name): t for name, t in parts.items()}
        save_file({**load_file(packed / WEIGHTS), **named}, packed / WEIGHTS)
    tensors = load_file(packed / WEIGHTS)
    packers = everywhere(tensors, packer)
    if mtp == "plain":
        packers = {name: one for name, one in packers.items() if not name.startswith("mtp.")}
    meant = rewritten(packed, packers, claims=claims)
    plain.mkdir()
    (plain / "config.json").write_text((packed / "config.json").read_text())
    body = {name: t.float().contiguous() for name, t in meant.items() if name[:4] != "mtp."}
    save_file(body, plain / WEIGHTS, metadata={"format": "pt"})
    config = json.loads((plain / "config.json").read_text())
    config.pop("quantization_config", None)
    (plain / "config.json").write_text(json.dumps(config))
    kind = type(model)
    meaning = kind.from_pretrained(plain, dtype=torch.float32, attn_implementation="eager").eval()
    if shape.experts:
        meaning.set_experts_implementation("eager")
    return meaning


def engine_of(folder: Path, **options: Any) -> HybridEngine:
    """The packed checkpoint of `model_of`, served."""
    return HybridEngine.load(folder / "packed", progress=False, **options)


def numbers(matrix: Matrix | Experts) -> Tensor:
    """All of it in float32; of experts [E, N, K]."""
    if isinstance(matrix, Experts):
        whole = dense(matrix.stack, 0, len(matrix.stack), torch.float32)
        return whole.view(len(matrix), matrix.rows, -1)
    return dense(matrix, 0, len(matrix), torch.float32)
