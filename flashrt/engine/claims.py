"""What config.json says about quantization: what of it counts, and whether it is true.

What is stored counts; the lists of what was left out are wrong in many published checkpoints. Only
what no tensor shows is taken from here. Knows no torch.
"""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import attrs

from flashrt.engine.headers import MULTIMODAL_PREFIX
from flashrt.engine.spellings import READ
from flashrt.errors import CannotServe

KEYS = ("quantization_config", "compression_config")

METHODS = (
    *("fp8", "fbgemm_fp8", "compressed-tensors", "gptq", "gptq_marlin", "awq", "awq_marlin"),
    *("modelopt", "modelopt_fp4", "modelopt_mixed", "auto-round", "auto_round"),
)
"""Quantizers whose tensors mean by themselves what they seem to."""

OF_GPTQ = ("gptq", "gptq_marlin", "auto-round", "auto_round")

OLD_GPTQ, NEW_GPTQ = "gptq", "gptq_v2"
OLD_OFFSET = 1

MODELOPT_FILE, GPTQ_FILE = "hf_quant_config.json", "quantize_config.json"

LEFT_OUT = ("ignore", "ignored_layers", "modules_to_not_convert", "exclude_modules")
"""Keys of lists of what is not quantized."""

MATRIX = re.compile(r"(?:^|\.)(?:\w+_proj|in_proj_\w+|fc)\.weight$")
"""Names of what a quantizer turns its hand to, the output head aside, which is left out by most."""


@attrs.frozen
class Claims:
    """Of one checkpoint."""

    source: str
    method: str
    left_out: tuple[str, ...] = ()
    """Names and patterns of modules that are said to be plain."""
    only: tuple[str, ...] = ()
    """Where it says which modules are quantized: names and patterns of these."""
    zero_offset: int = OLD_OFFSET
    """Of GPTQ: how much less than it means a stored zero is. No tensor shows it."""

    def quantizes(self, key: str) -> bool:
        """Whether it says that this matrix is quantized."""
        names = tuple(_names(key.removesuffix(".weight")))
        if any(_matches(pattern, names) for pattern in self.left_out):
            return False
        return not self.only or any(_matches(pattern, names) for pattern in self.only)


def read_claims(folder: Path) -> Claims | None:
    """Of the checkpoint in `folder`; None where it says nothing. Raises CannotServe for a method
    whose tensors mean something else than they seem to."""
    raw = _object(folder / "config.json")
    text = raw.get("text_config")
    levels = (raw, text if isinstance(text, dict) else {})
    found = [(key, level[key]) for level in levels for key in KEYS if level.get(key)]
    if found:
        key, said = found[0]
        return claims_of(said, f"config.json: {key}")
    said = _object(folder / MODELOPT_FILE).get("quantization")
    if isinstance(said, dict):
        return claims_of({"quant_method": "modelopt", **said}, MODELOPT_FILE)
    if said := _object(folder / GPTQ_FILE):
        return claims_of({"quant_method": "gptq", **said}, GPTQ_FILE)
    return None


def claims_of(said: Any, source: str) -> Claims:
    """See `read_claims`."""
    method = said.get("quant_method", said) if isinstance(said, Mapping) else said
    if not isinstance(said, Mapping) or method not in METHODS:
        raise CannotServe(
            f"{source} names the quantization {method!r}, which is unknown here; {READ}: use such "
            "a release of the model"
        )
    transforms = said.get("transform_config")
    if isinstance(transforms, Mapping) and transforms.get("config_groups"):
        raise CannotServe(
            f"{source}.transform_config rotates activations while the model runs, which is not "
            "done here; use a release without transforms"
        )
    left_out = [name for key in LEFT_OUT for name in _strings(said.get(key))]
    dynamic = said.get("dynamic")
    if isinstance(dynamic, Mapping):
        left_out += ["re:" + key[2:] for key in dynamic if str(key).startswith("-:")]
    offset = _zero_offset(said, method, source)
    return Claims(source, str(method), tuple(left_out), tuple(_only(said)), offset)


def _zero_offset(said: Mapping[str, Any], method: str, source: str) -> int:
    """Old GPTQ files store zeros as one less than they mean, and need not say so."""
    if method not in OF_GPTQ:
        return OLD_OFFSET
    written = said.get("checkpoint_format") or said.get("format") or OLD_GPTQ
    if written not in (OLD_GPTQ, NEW_GPTQ):
        raise CannotServe(
            f"{source}.checkpoint_format = {written!r} is a layout for one kernel; {READ}, GPTQ as "
            f"{OLD_GPTQ} or {NEW_GPTQ}"
        )
    return OLD_OFFSET if written == OLD_GPTQ else 0


def _only(said: Mapping[str, Any]) -> list[str]:
    """Names and patterns where it lists what is quantized; nothing where it means all."""
    layers = said.get("quantized_layers")
    if isinstance(layers, Mapping):
        return [str(name) for name in layers]
    groups = said.get("config_groups")
    targets = [
        target
        for group in (groups.values() if isinstance(groups, Mapping) else ())
        for target in _strings(group.get("targets") if isinstance(group, Mapping) else None)
    ]
    return [] if "Linear" in targets else targets


def disagreements(
    claims: Claims | None, plain: Iterable[str], quantized: Sequence[str]
) -> str | None:
    """In one sentence, where matrices are not stored as it is said; None where it is all true.

    `plain`, `quantized`: keys of the model's tensors.
    """
    if claims is None:
        if not quantized:
            return None
        some = _some(sorted(quantized))
        return f"config.json says nothing of quantization, but {some} is quantized"
    odd = [key for key in sorted(quantized) if not claims.quantizes(key)]
    bare = [key for key in sorted(plain) if MATRIX.search(key) and claims.quantizes(key)]
    told = []
    if odd:
        told.append(f"{_some(odd)} is quantized")
    if bare:
        told.append(f"{_some(bare)} is not")
    if not told:
        return None
    return f"{claims.source} ({claims.method}) says otherwise, but {', '.join(told)}"


def _some(keys: Sequence[str]) -> str:
    others = f" (and {len(keys) - 1} more)" if len(keys) > 1 else ""
    return f"{keys[0]}{others}"


def _names(module: str) -> Iterable[str]:
    """How a module may be called: with the prefixes that wrappers of the model have."""
    yield module
    if module.startswith("model."):
        inner = module.removeprefix("model.")
        yield from (MULTIMODAL_PREFIX + inner, "language_model.model." + inner, inner)


def _matches(pattern: str, names: Iterable[str]) -> bool:
    if pattern.startswith("re:"):
        try:
            found = re.compile(pattern[3:])
        except re.error:
            return False
        return any(found.match(name) for name in names)
    if "*" in pattern:
        return any(fnmatchcase(name, pattern) for name in names)
    return any(f".{pattern}." in f".{name}." for name in names)


def _strings(value: Any) -> list[str]:
    return [one for one in value if isinstance(one, str)] if isinstance(value, list) else []


def _object(file: Path) -> dict[str, Any]:
    """A JSON object; empty where there is none, since others complain of that."""
    try:
        raw = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return raw if isinstance(raw, dict) else {}
