"""Headers of safetensors files say what lies where, or the file is refused."""

import json
import struct
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from flashrt.engine.headers import read_headers
from flashrt.errors import CannotServe

FILE = "model.safetensors"
INDEX = "model.safetensors.index.json"


def put(folder: Path, name: str, **tensors: torch.Tensor) -> Path:
    """A safetensors file; `a__b` is the tensor a.b."""
    named = {key.replace("__", "."): tensor for key, tensor in tensors.items()}
    save_file(named, folder / name, metadata={"format": "pt"})
    return folder / name


def refusal(folder: Path) -> str:
    """Why the folder is refused."""
    with pytest.raises(CannotServe) as refused:
        read_headers(folder)
    return str(refused.value)


def test_every_tensor_is_found_where_its_bytes_are(tmp_path):
    """Name, dtype, shape, and an offset into the file; in file order, over all files."""
    a, b = torch.arange(6.0).view(2, 3), torch.arange(4, dtype=torch.bfloat16)
    put(tmp_path, "2.safetensors", model__b=b)
    put(tmp_path, "1.safetensors", model__c=a + 1, model__a=a)
    found = read_headers(tmp_path)
    assert [tensor.name for tensor in found] == ["model.a", "model.c", "model.b"]
    first, _, last = found
    data = first.file.read_bytes()[first.offset : first.offset + first.size]
    assert (first.dtype, first.shape, data) == ("F32", (2, 3), a.numpy().tobytes())
    assert (last.dtype, last.shape, last.size, last.file.name) == ("BF16", (4,), 8, "2.safetensors")


def test_an_index_says_which_files_count(tmp_path):
    """Other files in the folder, such as a second export of the model, are not looked at."""
    put(tmp_path, "part-1.safetensors", x=torch.zeros(1))
    put(tmp_path, "consolidated.safetensors", x=torch.zeros(1))
    (tmp_path / INDEX).write_text(json.dumps({"weight_map": {"x": "part-1.safetensors"}}))
    assert [tensor.file.name for tensor in read_headers(tmp_path)] == ["part-1.safetensors"]


def test_mtp_tensors_beside_the_index_are_found(tmp_path):
    """In a file named for them that was added later, and only them."""
    put(tmp_path, "part-1.safetensors", x=torch.zeros(1))
    put(tmp_path, "extra-MTP.safetensors", x=torch.ones(1), mtp__norm=torch.zeros(3))
    (tmp_path / INDEX).write_text(json.dumps({"weight_map": {"x": "part-1.safetensors"}}))
    found = [(tensor.name, tensor.file.name) for tensor in read_headers(tmp_path)]
    assert found == [("x", "part-1.safetensors"), ("mtp.norm", "extra-MTP.safetensors")]


def test_mtp_tensors_in_the_index_are_the_ones_that_count(tmp_path):
    """A second set beside it is another export."""
    put(tmp_path, "part-1.safetensors", mtp__norm=torch.zeros(3))
    put(tmp_path, "mtp.safetensors", mtp__norm=torch.ones(3))
    (tmp_path / INDEX).write_text(json.dumps({"weight_map": {"mtp.norm": "part-1.safetensors"}}))
    assert [tensor.file.name for tensor in read_headers(tmp_path)] == ["part-1.safetensors"]


def test_an_index_that_cannot_be_followed_is_refused(tmp_path):
    """A file that is missing, or no index at all."""
    (tmp_path / INDEX).write_text(json.dumps({"weight_map": {"x": "part-1.safetensors"}}))
    assert "names part-1.safetensors, which is not in" in refusal(tmp_path)
    for broken in ("{", "[]", "{}", '{"weight_map": 1}'):
        (tmp_path / INDEX).write_text(broken)
        assert "is no index of weights" in refusal(tmp_path)


def test_a_tensor_that_is_stored_twice_is_refused(tmp_path):
    """In two files, or under both prefixes of the family."""
    put(tmp_path, FILE, model__norm=torch.zeros(3))
    other = put(tmp_path, "other.safetensors", model__norm=torch.zeros(3))
    assert "model.norm is stored twice" in refusal(tmp_path)
    put(tmp_path, other.name, model__language_model__norm=torch.zeros(3))
    assert (
        "model.language_model.norm is stored twice: as model.norm in model.safetensors "
        "and in other.safetensors" in refusal(tmp_path)
    )


def header(text: str) -> bytes:
    """A file that is only a header."""
    return struct.pack("<Q", len(text)) + text.encode()


LIES = '{"x": {"dtype": "F32", "shape": [1], "data_offsets": [4, 0]}}'


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "not a safetensors file"),
        (b"\xff" * 100, "not a safetensors file"),
        (b"version https://git-lfs.github.com/spec/v1\n", "Git LFS pointer"),
        (header("nonsense"), "broken header"),
        (header("[]"), "broken header"),
        (header('{"x": {"dtype": "F32"}}'), "broken header"),
        (header(LIES), "broken header"),
    ],
)
def test_a_file_without_a_sound_header_is_refused(tmp_path, data, words):
    """By its path, and with what it looks like."""
    (tmp_path / FILE).write_bytes(data)
    message = refusal(tmp_path)
    assert words in message
    assert str(tmp_path / FILE) in message


def test_a_file_that_is_cut_short_is_refused(tmp_path):
    """Before a byte of a weight is read."""
    file = put(tmp_path, FILE, x=torch.zeros(100))
    file.write_bytes(file.read_bytes()[:-1])
    assert "is cut short: x should end at byte" in refusal(tmp_path)


def test_a_folder_without_weights_is_refused(tmp_path):
    """By its path."""
    assert f"{tmp_path} has no *.safetensors file" in refusal(tmp_path)
