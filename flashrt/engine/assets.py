"""Where a model lies on this machine, and what its small files say. Knows no torch.

Nothing is ever downloaded.
"""

import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import attrs

from flashrt.errors import CannotServe

REPOSITORY_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")
CACHED_FOLDER = re.compile(r"models--(?P<owner>[^/]+?)--(?P<name>[^/]+)")

NAME_KEY = "flashrt_model_name"
"""A key of config.json that names the model whatever its folder is called."""


@attrs.frozen
class GenerationDefaults:
    """What the model's authors recommend; a value of None is not recommended on."""

    temperature: float | None = None
    top_k: int | None = None
    top_p: float | None = None
    min_p: float | None = None
    repetition_penalty: float | None = None


# Per recommendation: which numbers make sense.
DEFAULT_RANGES: dict[str, tuple[float, float]] = {
    "temperature": (0.0, 100.0),
    "top_k": (0, 2**31),
    "top_p": (0.0, 1.0),
    "min_p": (0.0, 1.0),
    "repetition_penalty": (0.01, 100.0),
}


def find_model(model: str, cache: Path | None = None) -> Path:
    """The folder of `model`: a directory, or a repository id that is already in the local cache.

    `cache`: the Hugging Face cache to look in; None is the user's. Raises CannotServe, saying what
    is missing and what to run.
    """
    # Unlike a path's own methods, these raise neither for an unknown user nor for a long name.
    folder = Path(os.path.expanduser(model))
    if not os.path.isdir(folder):
        folder = _cached(model, cache)
    _check_complete(folder, model)
    return folder


def model_name(folder: Path) -> str:
    """What clients see: the config's own word, else the repository id, else the folder's name."""
    named = _optional_json(folder / "config.json").get(NAME_KEY)
    if isinstance(named, str) and named:
        return named
    resolved = folder.absolute()
    if resolved.parent.name == "snapshots":
        match = CACHED_FOLDER.fullmatch(resolved.parent.parent.name)
        if match:
            return f"{match['owner']}/{match['name']}"
    return folder.resolve().name


def read_generation_defaults(folder: Path) -> GenerationDefaults:
    """From generation_config.json; `do_sample: false` means temperature 0. No file: no defaults.

    Raises CannotServe for a value that no sampler could use.
    """
    file = folder / "generation_config.json"
    raw = _optional_json(file)
    found = {key: _default(raw, key, file) for key in DEFAULT_RANGES}
    if raw.get("do_sample") is False:
        found["temperature"] = 0.0
    return GenerationDefaults(**found)


def read_stop_ids(folder: Path) -> frozenset[int]:
    """All ids that end an answer: the union of what both configs (and text_config) name as eos.

    Raises CannotServe where none is named, or something that is no id.
    """
    config = _optional_json(folder / "config.json")
    text = config.get("text_config")
    generation = _optional_json(folder / "generation_config.json")
    sources = {
        "config.json": config,
        "config.json: text_config": text if isinstance(text, dict) else {},
        "generation_config.json": generation,
    }
    found: set[int] = set()
    for source, raw in sources.items():
        value = raw.get("eos_token_id")
        for one in value if isinstance(value, list) else [value]:
            if one is None:
                continue
            if type(one) is not int or one < 0:
                raise CannotServe(f"{folder / source}: eos_token_id = {value!r} is no token id")
            found.add(one)
    if not found:
        raise CannotServe(
            f"neither config.json nor generation_config.json in {folder} has an eos_token_id: "
            "answers would never end"
        )
    return frozenset(found)


def _cached(model: str, cache: Path | None) -> Path:
    if not REPOSITORY_ID.fullmatch(model):
        raise CannotServe(
            f"{model!r} is neither a directory nor a repository id of the form ORG/NAME"
        )
    # Imported here: it is slow to import, and a directory does not need it.
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HFValidationError, LocalEntryNotFoundError

    try:
        return Path(snapshot_download(model, cache_dir=cache, local_files_only=True))
    except (LocalEntryNotFoundError, HFValidationError) as error:
        raise CannotServe(
            f"{model!r} is neither a directory nor in the local Hugging Face cache, and nothing is "
            f"downloaded here; run: hf download {model}"
        ) from error


def _check_complete(folder: Path, model: str) -> None:
    again = f"; run: hf download {model}" if REPOSITORY_ID.fullmatch(model) else ""
    for name in ("config.json", "tokenizer.json"):
        if not (folder / name).is_file():
            raise CannotServe(f"{folder} has no {name}{again}")
    if not any(folder.glob("*.safetensors")):
        raise CannotServe(
            f"{folder} has no *.safetensors file, the only format of weights that is read{again}"
        )


def _default(raw: Mapping[str, Any], key: str, file: Path) -> Any:
    value = raw.get(key)
    if value is None:
        return None
    low, high = DEFAULT_RANGES[key]
    if type(value) not in (int, float) or not low <= value <= high:
        raise CannotServe(f"{file}: {key} = {value!r} is no number from {low} to {high}")
    if key != "top_k":
        return float(value)
    if value != int(value):
        raise CannotServe(f"{file}: {key} = {value!r} is no whole number")
    return int(value)


def _optional_json(file: Path) -> dict[str, Any]:
    try:
        raw = json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise CannotServe(f"{file} cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise CannotServe(f"{file} is not JSON: {error}") from error
    if not isinstance(raw, dict):
        raise CannotServe(f"{file} holds no JSON object")
    return raw
