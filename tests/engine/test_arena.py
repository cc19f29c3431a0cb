"""Room is held by whoever refers to it, and by nobody else."""

import threading

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from flashrt.engine.arena import Arena

PAGE = 16


def arena(*pages, more=0):
    return Arena([np.zeros(count * PAGE + more, np.uint8) for count in pages], PAGE)


def write(extents, number):
    for extent in extents:
        extent[:] = number


def reads(extents, number):
    return all((extent == number).all() for extent in extents)


def size_of(extents):
    return sum(map(len, extents))


@given(
    st.lists(st.integers(0, 6), max_size=3),
    st.lists(st.tuples(st.integers(0, 60), st.booleans()), max_size=20),
)
def test_what_is_held_never_shares_a_byte_and_all_that_fits_is_given(pieces, wishes):
    """Each holder writes a number of its own, and finds it again; those that go make room."""
    room, held = arena(*pieces, more=7), {}
    assert room.size_bytes == room.free_bytes == sum(pieces) * PAGE
    for number, (size, stays) in enumerate(wishes, 1):
        if room.rounded(size) > room.free_bytes:
            with pytest.raises(MemoryError):
                room.take(size)
            continue
        extents = room.take(size)
        assert size_of(extents) == room.rounded(size)
        write(extents, number)
        if stays:
            held[number] = extents
        del extents
        assert room.free_bytes == room.size_bytes - sum(map(size_of, held.values()))
    assert all(reads(held[number], number) for number in held)
    held.clear()
    assert room.free_bytes == room.size_bytes


@pytest.mark.parametrize(
    "made",
    [
        lambda extent: extent[3:5],
        lambda extent: extent[3:5].data,
        lambda extent: extent.data.cast("B")[3:5],
        lambda extent: torch.from_numpy(extent[4:8]),
        lambda extent: torch.from_numpy(extent[:8]).view(torch.int32)[1:],
    ],
    ids=["a part", "a view of bytes", "a part of one", "a tensor", "a part of a tensor"],
)
def test_whatever_is_made_of_an_extent_holds_it(made):
    """Also where the extent itself has gone; and only as long as it is there."""
    room = arena(2)
    (extent,) = room.take(PAGE)
    kept = made(extent)
    del extent
    assert room.free_bytes == PAGE
    del kept
    assert room.free_bytes == 2 * PAGE


def test_another_thread_may_be_the_last_to_let_go():
    """As the one that writes files."""
    room = arena(1)
    kept = [room.take(1)]
    thread = threading.Thread(target=kept.clear)
    thread.start()
    thread.join()
    assert room.free_bytes == PAGE
    assert room.take(PAGE)
