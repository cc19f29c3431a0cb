"""The newest rows of a block in a ring."""

import pytest
import torch

from flashrt.engine.passes import store_in_ring
from tests.engine.kernels.compare import CUDA, noise

from flashrt.engine.kernels.tail import store_tail  # isort: skip

pytestmark = pytest.mark.gpu
RING = 192


@pytest.mark.parametrize(("position", "count"), [(0, 5), (100, 92), (190, 300), (64, 192)])
def test_the_newest_rows_are_kept(position: int, count: int):
    """As the reference keeps them, with dead rows behind and rows that lie apart."""
    rows = noise(count + 9, 1500)[:, :1200]
    ours = noise(RING, 1200, seed=1)
    theirs = ours.clone()
    at = torch.tensor([position, 0, count], dtype=torch.int32, device=CUDA)

    store_tail(ours, at, rows)
    store_in_ring(theirs, position, rows[:count])

    assert torch.equal(ours, theirs)


def test_the_last_two_chunks_alone_are_kept_where_asked():
    """Older slots of the ring stay as they are."""
    ring = torch.zeros(RING, 8, device=CUDA)
    at = torch.tensor([0, 0, 150], dtype=torch.int32, device=CUDA)

    store_tail(ring, at, torch.ones(150, 8, device=CUDA), last_chunks=True)

    assert ring[:64].eq(0).all()
    assert ring[64:150].eq(1).all()
    assert ring[150:].eq(0).all()
