"""Finding a model on this machine, and reading its small files."""

import json
from pathlib import Path
from typing import Any

import pytest

from flashrt.engine.assets import (
    GenerationDefaults,
    find_model,
    model_name,
    read_generation_defaults,
    read_stop_ids,
)
from flashrt.errors import CannotServe

COMMIT = "0123456789abcdef0123456789abcdef01234567"


def folder_with(folder: Path, **files: Any) -> Path:
    """A folder with JSON files of those stems."""
    folder.mkdir(parents=True, exist_ok=True)
    for stem, value in files.items():
        (folder / f"{stem}.json").write_text(json.dumps(value))
    return folder


def checkpoint(folder: Path) -> Path:
    """The least that counts as a checkpoint."""
    (folder_with(folder, config={}, tokenizer={}) / "model.safetensors").touch()
    return folder


def cached(cache: Path, repository: str) -> Path:
    """A checkpoint in the layout of the Hugging Face cache."""
    root = cache / f"models--{repository.replace('/', '--')}"
    (root / "refs").mkdir(parents=True)
    (root / "refs" / "main").write_text(COMMIT)
    return checkpoint(root / "snapshots" / COMMIT)


def test_a_directory_is_a_model(tmp_path):
    """It is taken as it is and named after itself."""
    folder = checkpoint(tmp_path / "my-model")
    assert find_model(str(folder)) == folder
    assert model_name(folder) == "my-model"


def test_a_cached_repository_is_found_under_its_id(tmp_path):
    """The id leads to the snapshot, and the snapshot still knows its id."""
    folder = cached(tmp_path, "Some-Org/Model-1.5B")
    assert find_model("Some-Org/Model-1.5B", cache=tmp_path) == folder
    assert model_name(folder) == "Some-Org/Model-1.5B"


def test_a_config_may_name_its_model(tmp_path):
    """The config's own word wins over the folder."""
    assert model_name(folder_with(tmp_path, config={"flashrt_model_name": "mine"})) == "mine"


def test_a_repository_that_is_not_cached_is_refused_with_the_command_to_run(tmp_path):
    """Nothing is downloaded."""
    with pytest.raises(CannotServe, match="nothing is downloaded here; run: hf download Org/Name"):
        find_model("Org/Name", cache=tmp_path)


@pytest.mark.parametrize("model", ["no/such/folder", "nonsense", "/nowhere", "../x", "a b/c", ""])
def test_what_is_neither_a_folder_nor_an_id_is_refused(model, tmp_path, monkeypatch):
    """A typing error is not taken for a repository."""
    monkeypatch.chdir(tmp_path)
    if model == "":  # the empty path is the working directory
        with pytest.raises(CannotServe, match=r"has no config\.json"):
            find_model(model)
        return
    with pytest.raises(CannotServe, match="neither a directory nor a repository id"):
        find_model(model)


@pytest.mark.parametrize("name", ["config.json", "tokenizer.json", "model.safetensors"])
def test_an_incomplete_model_is_refused_by_the_missing_file(name, tmp_path):
    """Of a cached one, the message says again what to run."""
    folder = cached(tmp_path, "Org/Name")
    (folder / name).unlink()
    missing = name.replace("model.safetensors", "*.safetensors")
    for model in (str(folder), "Org/Name"):
        with pytest.raises(CannotServe) as refusal:
            find_model(model, cache=tmp_path)
        assert f"has no {missing}" in str(refusal.value)
    assert "hf download Org/Name" in str(refusal.value)


def test_stop_ids_are_the_union_of_all_configs(tmp_path):
    """config.json, its text part and generation_config.json each may name one or several."""
    folder = folder_with(
        tmp_path,
        config={"eos_token_id": 5, "text_config": {"eos_token_id": [6]}},
        generation_config={"eos_token_id": [7, 5]},
    )
    assert read_stop_ids(folder) == {5, 6, 7}
    assert read_stop_ids(
        folder_with(tmp_path, config={}, generation_config={"eos_token_id": 0})
    ) == {0}


@pytest.mark.parametrize("value", ["end", -1, 1.5, [1, None, "x"], True])
def test_a_stop_id_that_is_no_id_is_refused(value, tmp_path):
    """The message names the file and the value."""
    folder = folder_with(tmp_path, config={}, generation_config={"eos_token_id": value})
    with pytest.raises(
        CannotServe, match=r"generation_config\.json: eos_token_id = .* is no token"
    ):
        read_stop_ids(folder)


def test_a_model_that_cannot_end_is_refused(tmp_path):
    """No file names a stop id."""
    with pytest.raises(CannotServe, match="answers would never end"):
        read_stop_ids(folder_with(tmp_path, config={"eos_token_id": None}))


def test_recommendations_come_from_generation_config(tmp_path):
    """Those that are there; the others are None."""
    assert read_generation_defaults(tmp_path) == GenerationDefaults()
    folder = folder_with(
        tmp_path, generation_config={"do_sample": True, "temperature": 0.6, "top_k": 20, "top_p": 1}
    )
    assert read_generation_defaults(folder) == GenerationDefaults(0.6, 20, 1)


def test_a_model_that_does_not_sample_is_greedy(tmp_path):
    """`do_sample: false` means temperature 0, whatever else is written."""
    folder = folder_with(tmp_path, generation_config={"do_sample": False, "temperature": 0.6})
    assert read_generation_defaults(folder).temperature == 0


@pytest.mark.parametrize(
    ("key", "value"),
    [("temperature", -1), ("top_p", 1.5), ("top_k", 2.5), ("min_p", "a"), ("temperature", True)],
)
def test_a_recommendation_that_makes_no_sense_is_refused(key, value, tmp_path):
    """The message names the key and the value."""
    folder = folder_with(tmp_path, generation_config={key: value})
    with pytest.raises(CannotServe, match=f"{key} = {value!r}"):
        read_generation_defaults(folder)
