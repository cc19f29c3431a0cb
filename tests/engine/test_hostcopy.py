"""Buffers in host memory and as bytes. tests/engine/moving.py holds the laws of whole capsules."""

import math

import attrs
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from flashrt.engine.hostcopy import DTYPES, HostCopies, from_bytes, to_bytes
from flashrt.engine.protocol import RawBuffer, RowBlock
from flashrt.errors import EngineFailed
from tests.engine.models import Shape, make_engine

SHAPES = st.lists(st.integers(0, 5), max_size=4).map(tuple)


def bits(tensor):
    return tensor.contiguous().reshape(-1).view(torch.uint8)


@given(SHAPES, st.sampled_from(sorted(DTYPES)), st.integers(0, 2**31))
def test_bytes_give_the_same_buffer_back(shape, dtype, seed):
    """Whatever its shape, none and empty ones too, and whatever bits it has."""
    size = math.prod(shape) * DTYPES[dtype].itemsize
    random = torch.randint(0, 256, (size,), generator=torch.Generator().manual_seed(seed))
    tensor = random.to(torch.uint8).view(DTYPES[dtype]).reshape(shape)
    for data in (bytes, bytearray):
        raw = {
            name: RawBuffer(b.dtype, b.shape, data(b.data))
            for name, b in to_bytes({"a": tensor}).items()
        }
        back = from_bytes(raw)["a"]
        assert (back.dtype, back.shape) == (tensor.dtype, tensor.shape)
        assert torch.equal(bits(back), bits(tensor))


def test_a_buffer_that_is_a_part_of_another_is_written_in_its_own_order():
    """Columns and transposed ones lie apart in memory."""
    whole = torch.arange(24.0).reshape(4, 6)
    for part in (whole[:, 1:3], whole.T, whole[::2]):
        assert torch.equal(from_bytes(to_bytes({"a": part}))["a"], part)


@pytest.mark.parametrize(
    ("raw", "words"),
    [
        (RawBuffer("object", (1,), b"12345678"), "'object'"),
        (RawBuffer("float32", (3,), b"12345678"), "8 bytes"),
        (RawBuffer("float32", (-1, -2), b"12345678"), "8 bytes"),
    ],
)
def test_what_is_no_buffer_is_refused_by_its_name(raw, words):
    """Before any tensor is made of it."""
    with pytest.raises(ValueError, match="'kv'") as refused:
        from_bytes({"kv": raw})
    assert words in str(refused.value)


def test_on_a_cpu_a_copy_is_done_at_once():
    """And holds no memory of what it was made from."""
    source = {"a": torch.arange(6.0)}
    copy = HostCopies(torch.device("cpu")).begin(source)
    assert copy.done
    source["a"].zero_()
    assert torch.equal(copy.wait()["a"], torch.arange(6.0))


@pytest.mark.parametrize(
    "bend",
    [lambda t: t.double(), lambda t: t[..., :1], lambda t: t.unsqueeze(0)],
    ids=["another dtype", "one column", "one axis more"],
)
@pytest.mark.parametrize("name", ["kv", "anchor", "keys", "raw", "hidden"])
def test_a_restore_takes_nothing_that_would_have_to_be_bent(name, bend):
    """Not even what PyTorch would stretch or convert; the engine is empty then, and goes on."""
    engine = make_engine(Shape())
    list(engine.prefill([id_ % 60 for id_ in range(70)]))
    capsule = engine.snapshot()
    (block,) = capsule.rows
    state = {**capsule.state, **({name: bend(capsule.state[name])} if name != "kv" else {})}
    if name == "kv":
        rows = {**block.buffers, name: bend(block.buffers[name])}
        block = RowBlock(0, block.packed, rows, block.block_bytes)
    with pytest.raises(EngineFailed, match=f"'{name}'"):
        engine.restore(attrs.evolve(capsule, state=state, rows=(block,)))
    assert engine.position == 0
    engine.restore(capsule)
    assert engine.position == 70


@pytest.mark.gpu
def test_a_gpus_copy_is_pinned_and_of_the_moment_in_which_it_was_begun():
    """Though what it is made of is written to, in the engine's stream, right behind."""
    copies = HostCopies(torch.device("cuda"))
    source = torch.arange(1 << 24, device="cuda", dtype=torch.float32)
    want = source.cpu()
    copy = copies.begin({"a": source, "empty": source[:0]})
    copy.wait()
    source.zero_()
    assert copy.done
    assert copy.wait()["a"].is_pinned()
    assert torch.equal(copy.wait()["a"], want)
    assert torch.equal(copies.back(copy.wait())["a"].cpu(), want)


@pytest.mark.gpu
def test_what_a_gpus_copy_is_made_of_may_be_let_go_of_at_once():
    """Its memory is not given to others before the copy is whole."""
    copies = HostCopies(torch.device("cuda"))
    for number in range(20):
        source = torch.full((1 << 24,), float(number), device="cuda")
        copy = copies.begin({"a": source})
        del source
        torch.full((1 << 24,), -1.0, device="cuda")
        assert copy.wait()["a"].unique().tolist() == [float(number)]
