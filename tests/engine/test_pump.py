"""Copies by a thread, a few pieces at a time. The stream is held by the test, or a GPU's own."""

import threading
import weakref

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from flashrt.engine import pump as pumping
from flashrt.engine.arena import Arena
from flashrt.engine.hostcopy import HostCopies
from flashrt.engine.paged import placed, size_of
from flashrt.engine.pump import IN_FLIGHT, Pump
from tests.engine.contract import same_capsule, take
from tests.engine.drafted import make_drafted
from tests.engine.held import HeldStream
from tests.engine.moving import MOVING, scattered

PAGE = 32
PIECE = 80


@pytest.fixture(autouse=True, scope="module")
def small_pieces():
    """Tests count pieces of a few bytes."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pumping, "PIECE_BYTES", PIECE)
        yield


@pytest.fixture
def stream():
    stream = HeldStream()
    yield stream
    stream.open()


@pytest.fixture
def pump(stream):
    pump = Pump(stream)
    yield pump
    pump.close()


def random(size, seed=1):
    dice = torch.Generator().manual_seed(seed)
    return torch.randint(0, 256, (size,), dtype=torch.uint8, generator=dice)


def begin(pump, arena, sources):
    return pump.begin(sources, placed(sources, arena.take(size_of(sources))))


def same(copy, source):
    return all(torch.equal(copy.buffers[n].contiguous(), b) for n, b in source.items())


SIZES = st.lists(st.lists(st.integers(0, 300), max_size=3), min_size=1, max_size=4)


@given(SIZES, st.booleans())
def test_copies_arrive_whole_and_in_order_with_the_next_piece_always_under_way(sizes, apart):
    """And never more pieces than that, whatever is copied and however its room is scattered."""
    stream = HeldStream()
    pump = Pump(stream)
    room = sum(map(sum, sizes)) + PAGE * len(sizes)
    arena = scattered(room, PAGE) if apart else Arena([random(room + PAGE).numpy()], PAGE)
    sources = [{str(i): random(n, i) for i, n in enumerate(copy)} for copy in sizes]
    copies = [begin(pump, arena, source) for source in sources]
    pump.close()
    assert not any(copy.done for copy in copies)
    stream.start.set()
    busy = []
    while stream.waited.get():
        busy.append(stream.under_way)
        over = [copy.done for copy in copies]
        assert over == sorted(over, reverse=True)
        assert all(map(same, copies[: sum(over)], sources))
        stream.gate.release()
    assert all(copy.done for copy in copies)
    assert all(map(same, copies, sources))
    assert stream.kept_behind == list(range(1, len(copies) + 1))
    assert busy == [min(IN_FLIGHT, stream.sent - n) for n in range(stream.sent)]


@pytest.mark.parametrize("sizes", [[1000], [300, 300, 0, 400], [10] * 100])
def test_a_piece_is_as_long_as_it_may_be(pump, stream, sizes):
    """Long buffers are cut, and short ones go together behind one event."""
    arena = Arena([random(1024).numpy()], PAGE)
    stream.open()
    copy = begin(pump, arena, {str(i): random(n, i) for i, n in enumerate(sizes)})
    copy.wait()
    ends = [n for n in sizes if n > PIECE]  # a long one's end may stand alone
    assert -(-1000 // PIECE) <= stream.sent <= -(-1000 // PIECE) + len(ends)


def test_what_is_copied_is_held_until_it_has_arrived_and_no_longer(pump, stream):
    """Nobody else has to keep it, and whoever hears of the end may rely on it."""
    memory = random(PIECE * 4).numpy()
    gone = weakref.ref(memory)
    copy = begin(pump, scattered(1024, 1024), {"a": torch.from_numpy(memory)})
    del memory
    stream.start.set()
    for _ in range(4):
        stream.waited.get()
        assert gone() is not None
        assert not copy.done
        stream.gate.release()
    copy.wait()
    assert copy.done
    assert gone() is None


def test_what_nobody_wants_any_more_is_not_copied(pump, stream):
    """What had begun holds its room until what is under way of it has arrived; what had not,
    nothing."""
    arena = Arena([random(1024).numpy()], PAGE)
    copies = [begin(pump, arena, {"a": random(PAGE * 10)}) for _ in range(3)]
    last = copies.pop()
    free = arena.free_bytes
    stream.start.set()
    stream.waited.get()
    copies.pop()
    assert arena.free_bytes == free + PAGE * 10
    copies.pop()
    assert arena.free_bytes == free + PAGE * 10
    stream.open()
    assert pump.let_go()
    assert arena.free_bytes >= free + PAGE * 20
    assert not pump.let_go()
    last.wait()
    assert stream.sent == IN_FLIGHT + 4
    assert stream.kept_behind == [1, 3]


class Opening(threading.Event):
    """Lets everything arrive when somebody waits for it."""

    def __init__(self, stream):
        super().__init__()
        self.stream = stream

    def wait(self, timeout=None):
        self.stream.open()
        return super().wait(timeout)


def test_room_of_a_copy_that_was_given_up_is_there_for_the_next_one(pump, stream):
    """Who needs it waits for the pieces under way, though other copies are before and behind; and
    who needs more than that is refused at once."""
    arena = scattered(PAGE * 10, PAGE)
    copies = HostCopies(torch.device("cpu"), arena)
    copies._pump = pump
    first = copies.begin({"a": random(PAGE)})
    second = copies.begin({"a": random(PAGE * 8)})
    third = copies.begin({"a": random(PAGE)})
    stream.start.set()
    stream.waited.get()
    with pytest.raises(MemoryError):
        copies.begin({"a": random(PAGE)})
    second._job.over = Opening(stream)
    del second
    wanted = {"a": random(PAGE * 8, 2)}
    copy = copies.begin(wanted)
    copy.wait()
    assert same(copy, wanted)
    assert first.done
    assert third.done


class Unreadable:
    """A buffer that fails when it is read."""

    nbytes = 16

    def contiguous(self):
        raise RuntimeError("a planned fault")


def test_a_fault_is_told_to_who_waits_and_the_next_copy_is_made(pump, stream):
    """It holds nothing then; the thread goes on."""
    arena = scattered(1024, PAGE)
    memory = random(PAGE * 3).numpy()
    gone, good = weakref.ref(memory), torch.from_numpy(memory)
    room = placed({"a": good, "b": good}, arena.take(PAGE * 6))
    lost = pump.begin({"a": good, "b": Unreadable()}, room)
    after = begin(pump, arena, {"a": random(200, 3)})
    del memory, good, room
    stream.open()
    for _ in range(2):
        with pytest.raises(RuntimeError, match="a planned fault"):
            lost.wait()
    assert lost.done
    assert gone() is None
    assert torch.equal(after.wait()["a"].contiguous(), random(200, 3))
    del lost
    assert arena.free_bytes == 1024 - arena.rounded(200)


def test_a_fault_of_the_device_is_told_too(pump, stream):
    """To everybody whose pieces are lost with it; nobody waits for ever."""
    copies = [begin(pump, scattered(1024, PAGE), {"a": random(500)}) for _ in range(2)]
    stream.fault = RuntimeError("the device is gone")
    stream.open()
    for copy in copies:
        with pytest.raises(RuntimeError, match="the device is gone"):
            copy.wait()
    assert stream.sent == 2 * IN_FLIGHT


def test_the_thread_ends_behind_what_is_under_way(stream):
    """Also where all of it was asked for before it had begun."""
    pump = Pump(stream)
    copy = begin(pump, scattered(1024, PAGE), {"a": random(500)})
    pump.close()
    stream.open()
    while stream.waited.get():
        pass
    assert copy.done


@pytest.fixture
def pinned(monkeypatch):
    """A GPU's copies, with 512 MiB of pinned memory, in pieces as a server has them."""
    monkeypatch.setattr(pumping, "PIECE_BYTES", 4 << 20)
    copies = HostCopies(torch.device("cuda"))
    assert copies.take(512 << 20) == 512 << 20
    return copies


def ends(copy):
    """The least and the greatest number that arrived."""
    whole = copy.wait()["a"].contiguous()
    return float(whole.min()), float(whole.max())


@pytest.mark.gpu
def test_a_few_bytes_do_not_wait_for_a_whole_copy(pinned):
    """As a step of decode sends them: many of them are there before it is."""
    state, id_ = torch.ones(1 << 27, device="cuda"), torch.tensor([7], device="cuda")
    copy = pinned.begin({"a": state})
    assert [id_.cpu().item() for _ in range(10)] == [7] * 10
    assert not copy.done
    assert ends(copy) == (1.0, 1.0)


@pytest.mark.gpu
def test_copies_on_a_gpu_are_done_in_order_and_of_what_was_computed_before(pinned):
    """The engine's stream is not waited for by who begins, but by the copy."""
    copies, sums = [], []
    for number in range(6):
        made = torch.zeros(1 << 22, device="cuda")
        for _ in range(200):
            made += number
        copies.append(pinned.begin({"a": made, "none": made[:0]}))
        sums.append(200.0 * number)
        del made
    for at in reversed(range(6)):
        assert ends(copies[at]) == (sums[at], sums[at])
        assert all(copy.done for copy in copies[: at + 1])


@pytest.mark.gpu
def test_a_copy_that_is_given_up_mixes_no_bit_into_the_next_one(pinned):
    """Which takes its room while it is under way."""
    sources = [torch.full((1 << 27,), float(i), device="cuda") for i in range(4)]  # 512 MiB each
    for number, source in enumerate(sources):
        pinned.begin({"a": sources[0] + 9})
        copy = pinned.begin({"a": source})
        assert ends(copy) == (number, number)
        del copy


def on_cpu(engine):
    """The engine's copies go through a pump from now on, as beside a GPU."""
    stream = HeldStream()
    stream.open()
    engine._copies = HostCopies(torch.device("cpu"), scattered(16 << 20, 4096))
    engine._copies._pump = Pump(stream)


def test_capsules_that_were_pumped_keep_the_laws_of_moving():
    """All of them, on the real engine."""
    for check in MOVING:
        one, other = (make_drafted(max_seq=256) for _ in range(2))
        on_cpu(one)
        check(one, other)
        one._copies._pump.close()


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def test_decode_beside_copies_has_the_bits_of_decode_alone(device, monkeypatch):
    """And the copies those of their moment; in pieces so small that many steps run beside them."""
    monkeypatch.setattr(pumping, "PIECE_BYTES", 4096)
    dtype = torch.bfloat16 if device == "cuda" else torch.float32
    engine, oracle = (make_drafted(device=device, dtype=dtype) for _ in range(2))
    engine.take_host(64 << 20)
    if device == "cpu":
        on_cpu(engine)
    for one in (engine, oracle):
        list(one.prefill([id_ % 60 for id_ in range(300)], (256,)))
    capsule = engine.snapshot()
    parts = [capsule.state, *(block.buffers for block in capsule.rows)]
    want = [{name: b.clone().cpu() for name, b in part.items()} for part in parts]
    copies = [[engine.to_host(part) for part in parts] for _ in range(8)]
    assert take(engine, 60) == take(oracle, 60)
    for again in copies:
        for copy, part in zip(again, want, strict=True):
            whole = copy.wait()
            assert all(torch.equal(whole[n].contiguous(), b) for n, b in part.items())
    assert same_capsule(engine.snapshot(), oracle.snapshot())
    if device == "cpu":
        engine._copies._pump.close()
