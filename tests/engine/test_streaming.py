"""Bytes of tensors reach their places, in pieces or whole."""

import json
import zlib

import pytest
import torch
from safetensors.torch import save_file
from tqdm import tqdm

from flashrt.engine import streaming
from flashrt.engine.headers import read_headers
from flashrt.engine.repack import Staged
from flashrt.engine.streaming import DTYPES, Stream
from flashrt.errors import CannotServe

DRAW = torch.Generator().manual_seed(2)


def some(dtype: torch.dtype) -> torch.Tensor:
    """Numbers of every dtype that is read, more than one piece of them."""
    noise = torch.randint(-100, 100, (37, 29), generator=DRAW)
    return noise.abs().to(dtype) if dtype == torch.uint8 else noise.to(dtype)


@pytest.fixture
def written(tmp_path, monkeypatch):
    """One tensor of every dtype in two files, and reads of 1,000 bytes."""
    monkeypatch.setattr(streaming, "PIECE_BYTES", 1000)
    tensors = {name: some(dtype) for name, dtype in DTYPES.items()}
    for part in (0, 1):
        names = list(tensors)[part::2]
        save_file({name: tensors[name] for name in names}, tmp_path / f"{part}.safetensors")
    return tmp_path, tensors


def run(folder, targets) -> dict[str, list[int]]:
    """Everything in the folder, without a bar."""
    with tqdm(disable=True) as bar:
        return Stream(targets, torch.device("cpu"), bar).run(read_headers(folder))


@pytest.mark.parametrize("staged", [False, True], ids=["in place", "staged"])
def test_every_dtype_arrives_bit_for_bit(written, staged):
    """In pieces; the checksums are those of the stored bytes, however it arrives."""
    folder, tensors = written
    places = {name: torch.zeros_like(tensor) for name, tensor in tensors.items()}
    targets = {
        name: Staged(lambda whole, name=name: places[name].copy_(whole)) if staged else place
        for name, place in places.items()
    }
    crcs = run(folder, targets)
    for name, tensor in tensors.items():
        data = tensor.view(torch.uint8).numpy().tobytes()
        assert places[name].view(torch.uint8).numpy().tobytes() == data
        assert crcs[name] == [zlib.crc32(data[at : at + 1000]) for at in range(0, len(data), 1000)]


@pytest.mark.parametrize("staged", [False, True], ids=["in place", "staged"])
@pytest.mark.parametrize("kind", ["F32", "BF16", "F8_E4M3"])
def test_a_value_that_is_not_finite_is_refused(written, kind, staged):
    """Also of eight bits, at the very end of a tensor."""
    folder, tensors = written
    tensors[kind][-1, -1] = torch.nan
    save_file(tensors, folder / "0.safetensors")
    (folder / "1.safetensors").unlink()
    targets = {name: torch.zeros_like(tensor) for name, tensor in tensors.items()}
    if staged:
        targets[kind] = Staged(lambda whole: None)
    with pytest.raises(CannotServe, match=f"tensor {kind} in 0.safetensors has values .* finite"):
        run(folder, targets)


def test_what_a_staged_tensor_says_is_odd_is_told_with_its_name(written):
    """And the file that it is in."""

    def place(whole: torch.Tensor) -> None:
        raise ValueError("is odd")

    folder, tensors = written
    targets = {name: Staged(place) for name in tensors}
    with pytest.raises(CannotServe, match=r"tensor \w+ in \d.safetensors is odd"):
        run(folder, targets)


def test_a_file_that_ends_while_it_is_read_is_refused(written):
    """Somebody replaced it after its header was read."""
    folder, tensors = written
    found = read_headers(folder)
    file = folder / "0.safetensors"
    file.write_bytes(file.read_bytes()[:-10])
    targets = {name: torch.zeros_like(tensor) for name, tensor in tensors.items()}
    with tqdm(disable=True) as bar, pytest.raises(CannotServe, match=r"0\.safetensors ended"):
        Stream(targets, torch.device("cpu"), bar).run(found)


def test_the_table_of_dtypes_is_that_of_the_files(written):
    """Names are those of headers."""
    folder, _ = written
    header = (folder / "0.safetensors").read_bytes()
    raw = json.loads(header[8 : 8 + int.from_bytes(header[:8], "little")])
    names = {name: entry["dtype"] for name, entry in raw.items() if name != "__metadata__"}
    assert names
    assert all(name == dtype for name, dtype in names.items())
