"""Copies on their way to files, by a thread."""

import weakref

import pytest
import torch

from flashrt.engine.bounce import SLOT_BYTES, Bounce
from tests.engine.contract import take
from tests.engine.drafted import make_drafted

PLACES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]


@pytest.fixture(params=PLACES)
def device(request):
    return torch.device(request.param)


@pytest.fixture
def bounce(device):
    bounce = Bounce(device)
    yield bounce
    bounce.close()


def test_every_buffer_arrives_whole_through_two_slots(bounce, device):
    """Longer than both slots together, shorter than one, of nothing, and not in one piece."""
    long = torch.arange(SLOT_BYTES // 4 * 2 + 77, dtype=torch.int32, device=device)
    sources = {
        "long": long,
        "short": long[:5].to(torch.bfloat16),
        "empty": long[:0].view(0, 3),
        "apart": long[:24].view(4, 6)[:, 1:3],
    }
    copy = bounce.begin(sources).wait()
    assert list(copy) == list(sources)
    for name, source in sources.items():
        assert copy[name].dtype == source.dtype
        assert torch.equal(copy[name], source.cpu())
        assert copy[name].device.type == "cpu"


def test_what_is_copied_is_held_until_it_is_and_no_longer(bounce, device):
    """Nobody else has to keep it."""
    source = torch.full((1000,), 7.0, device=device)
    gone = weakref.ref(source)
    copy = bounce.begin({"a": source})
    del source
    assert copy.wait()["a"].unique().tolist() == [7.0]
    assert copy.done
    assert gone() is None


def test_a_fault_is_told_to_who_waits_and_the_next_copy_is_made(bounce, device):
    """The thread goes on, and the fault holds nothing."""
    assert bounce.begin({}).wait() == {}
    lost = bounce.begin({"a": _Unreadable(torch.zeros(3, device=device))})
    with pytest.raises(RuntimeError, match="a planned fault"):
        lost.wait()
    assert lost.done
    gone = weakref.ref(lost)
    del lost
    assert gone() is None
    assert bounce.begin({"a": torch.ones(2, device=device)}).wait()["a"].tolist() == [1.0, 1.0]


class _Unreadable:
    """Shows a shape, and fails when it is read."""

    def __init__(self, tensor):
        self.shape, self.dtype = tensor.shape, tensor.dtype

    def reshape(self, *_):
        raise RuntimeError("a planned fault")


@pytest.mark.gpu
def test_a_copy_beside_decode_has_the_bits_of_its_moment():
    """Whatever the engine writes meanwhile."""
    engine = make_drafted(device="cuda", dtype=torch.bfloat16)
    list(engine.prefill([id_ % 60 for id_ in range(300)]))
    capsule = engine.snapshot()
    want = {name: b.cpu() for name, b in capsule.rows[0].buffers.items()}
    copy = engine.for_file(capsule.rows[0].buffers)
    take(engine, 20)
    got = copy.wait()
    assert all(torch.equal(got[name], want[name]) for name in want)
