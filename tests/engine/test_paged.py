"""Buffers in pieces have the bits of those that they are copies of."""

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from flashrt.engine.arena import Arena
from flashrt.engine.paged import Paged, first_rows, placed, size_of
from tests.engine.moving import scattered

PAGE = 16
DTYPES = st.sampled_from((torch.bfloat16, torch.float32, torch.int64))
SHAPES = st.lists(st.integers(0, 4), max_size=4).map(tuple)


def random(shape, dtype, seed):
    dice = torch.Generator().manual_seed(seed)
    size = int(np.prod(shape, dtype=int)) * dtype.itemsize
    return torch.randint(0, 256, (size,), dtype=torch.uint8, generator=dice).view(dtype).view(shape)


def bits(tensor):
    return tensor.contiguous().reshape(-1).view(torch.uint8)


def copied(buffers, arena):
    copy = placed(buffers, arena.take(size_of(buffers)))
    for name, buffer in buffers.items():
        copy[name].fill(buffer)
    return copy


@given(st.lists(st.tuples(SHAPES, DTYPES), max_size=5), st.integers(0, 2**31))
def test_buffers_lie_one_behind_the_other_with_all_their_bits(shapes, seed):
    """However their room is scattered, and in no more pages than their bytes need."""
    buffers = {str(i): random(shape, dtype, seed + i) for i, (shape, dtype) in enumerate(shapes)}
    arena = scattered(size_of(buffers), PAGE)
    copy = copied(buffers, arena)
    assert arena.free_bytes == 0
    assert list(copy) == list(buffers)
    for name, buffer in buffers.items():
        assert (copy[name].shape, copy[name].dtype) == (tuple(buffer.shape), buffer.dtype)
        assert copy[name].nbytes == buffer.nbytes
        assert torch.equal(bits(copy[name].contiguous()), bits(buffer))
    del copy
    assert arena.free_bytes == arena.size_bytes


@given(
    outer=st.lists(st.integers(1, 3), max_size=3),
    rows=st.integers(1, 5),
    kept=st.integers(0, 5),
    width=st.integers(1, 9),
    spare=st.integers(0, 2),
    dtype=DTYPES,
    axis=st.integers(0, 3),
)
def test_the_first_rows_go_to_a_part_of_another_tensor(
    outer, rows, kept, width, spare, dtype, axis
):
    """Which has more rows, and more of another axis; nothing beside it is touched."""
    source = random((*outer, rows, width), dtype, 1)
    copy = copied({"kv": source}, scattered(source.nbytes, PAGE))["kv"]
    kept = min(kept, rows)
    room = list(source.shape)
    room[-2] += spare
    axis = min(axis, len(outer))
    room[axis] += 1
    whole = torch.zeros(room, dtype=dtype)
    part = tuple(slice(1, 1 + n) if i == axis else slice(n) for i, n in enumerate(source.shape))
    target = whole[part][..., :kept, :]
    want = whole.clone()
    want[part][..., :kept, :] = source[..., :kept, :]

    first = first_rows(copy, kept)
    assert isinstance(first, Paged)
    first.into(target)

    assert torch.equal(bits(whole), bits(want))


def test_a_tensors_first_rows_are_a_view_of_it():
    """Nothing is copied."""
    source = torch.arange(24.0).reshape(2, 4, 3)
    assert torch.equal(first_rows(source, 2), source[:, :2])
    assert first_rows(source, 2).data_ptr() == source.data_ptr()


@given(st.integers(0, 1000), st.integers(1, 100))
def test_a_long_buffer_goes_in_several_transfers(count, size):
    """None longer than asked for; together they are the buffer, pages or not."""
    source = random((count,), torch.float32, 3)
    for arena in (Arena([np.zeros(4000 + PAGE, np.uint8)], PAGE), scattered(4000, PAGE)):
        copy = placed({"a": source}, arena.take(source.nbytes))["a"]
        for there, here in copy.transfers(source, size):
            assert 0 < len(there) <= size
            here.copy_(there)
        assert torch.equal(bits(copy.contiguous()), bits(source))
