"""Words to device and dtype."""

import os

import pytest
import torch

from flashrt.engine.placement import Placement, block_tokens, free_bytes, is_out_of_memory
from flashrt.errors import CannotServe


@pytest.mark.parametrize(
    ("dtype", "wanted"),
    [("auto", torch.float32), ("float32", torch.float32), ("bfloat16", torch.bfloat16)],
)
def test_a_cpu_computes_in_float32_unless_told_otherwise(dtype, wanted):
    """The dtype that is quicker and exact on a CPU is its default."""
    assert Placement.of("cpu", dtype) == Placement(torch.device("cpu"), wanted)


@pytest.mark.parametrize(
    ("word", "wanted"),
    [("auto", torch.float32), ("bf16", torch.bfloat16), ("fp8", torch.float8_e4m3fn)],
)
def test_keys_and_values_are_kept_in_the_dtype_unless_told_otherwise(word, wanted):
    """Here, and on a machine that is only thought of."""
    assert Placement.of("cpu", "float32", word).kv_dtype == wanted
    assert Placement.supposed("cuda", "float32", word).kv_dtype == wanted
    assert Placement(torch.device("cpu"), torch.float32).kv_dtype == torch.float32


def test_a_gpu_that_cannot_keep_such_keys_and_values_is_refused(monkeypatch):
    """One of this machine; of one that is only thought of nobody knows."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (8, 6))
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "an older card")
    with pytest.raises(CannotServe, match=r"--kv-cache-dtype fp8: an older card"):
        Placement.of("auto", "auto", "fp8")
    assert Placement.of("auto", "auto", "bf16").kv_dtype == torch.bfloat16
    assert Placement.supposed("auto", "auto", "fp8").kv_dtype == torch.float8_e4m3fn


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has what the test asks to lack")
def test_a_device_that_is_not_there_is_refused_by_name():
    """Not a traceback from inside torch."""
    assert Placement.of("auto", "auto").device.type == "cpu"
    with pytest.raises(CannotServe, match=r"--device cuda.*use --device cpu"):
        Placement.of("cuda", "auto")


def test_free_memory_is_less_than_all_of_it():
    """A machine that runs this test has some left."""
    everything = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    assert 0 < free_bytes("cpu") < everything


def test_an_allocation_that_failed_is_known():
    """Of Python, of a GPU, and PyTorch's on the CPU, which has no type of its own."""
    with pytest.raises(RuntimeError) as failed:
        torch.empty(1 << 60, dtype=torch.uint8)
    assert is_out_of_memory(failed.value)
    assert is_out_of_memory(MemoryError())
    assert is_out_of_memory(torch.OutOfMemoryError("CUDA out of memory"))
    assert not is_out_of_memory(RuntimeError("shapes do not fit"))


@pytest.mark.parametrize(
    ("device", "wish", "tokens"), [("cpu", 0, 1024), ("cuda:0", 0, 2048), ("cuda", 64, 64)]
)
def test_a_block_of_a_prompt_is_as_long_as_suits_the_device(device: str, wish: int, tokens: int):
    """Unless a user says how long."""
    assert block_tokens(device, wish) == tokens
