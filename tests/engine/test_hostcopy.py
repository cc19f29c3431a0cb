"""Buffers in host memory and as bytes. tests/engine/moving.py holds the laws of whole capsules."""

import math

import attrs
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from flashrt.engine.arena import Arena
from flashrt.engine.hostcopy import DTYPES, HostCopies, from_bytes, to_bytes
from flashrt.engine.hybrid import HybridEngine
from flashrt.engine.protocol import RawBuffer, RowBlock
from flashrt.errors import EngineFailed
from tests.engine.contract import same_capsule, take
from tests.engine.drafted import make_drafted
from tests.engine.models import Shape, make_engine
from tests.engine.moving import MOVING, scattered

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


PAGE = 64


def in_arena(engine: HybridEngine, size_bytes: int, page_bytes: int = PAGE) -> Arena:
    """The engine's copies lie in an arena from now on, no two pages of which lie together."""
    arena = scattered(size_bytes, page_bytes)
    engine._copies = HostCopies(torch.device("cpu"), arena)
    return arena


def test_capsules_in_scattered_pages_keep_the_laws_of_moving():
    """All of them, on the real engine."""
    for check in MOVING:
        one, other = (make_drafted(max_seq=256) for _ in range(2))
        for engine in (one, other):
            in_arena(engine, 16 << 20, 4096)
        check(one, other)


def test_a_copy_that_finds_no_room_is_refused_and_one_that_goes_makes_some():
    """By pages: what fits by the sum of `host_bytes` fits."""
    engine = make_engine(Shape())
    list(engine.prefill([id_ % 60 for id_ in range(70)]))
    capsule = engine.snapshot()
    parts = [capsule.state, capsule.rows[0].buffers]
    need = [sum(b.nbytes for b in part.values()) for part in parts]
    arena = in_arena(engine, sum(-(-size // PAGE) * PAGE for size in need))
    assert sum(map(engine.host_bytes, need)) == arena.size_bytes
    held = [engine.to_host(part).wait() for part in parts]
    assert arena.free_bytes == 0
    with pytest.raises(MemoryError):
        engine.to_host(capsule.state)
    engine.for_file(capsule.state).wait()
    views = engine.to_bytes(held.pop())
    with pytest.raises(MemoryError):
        engine.to_host(parts[1])
    del views
    assert arena.free_bytes == engine.host_bytes(need[1])
    engine.to_host(parts[1])


def test_beside_no_gpu_nothing_is_taken():
    """A wish is a number that the store keeps to."""
    copies = HostCopies(torch.device("cpu"))
    assert copies.take(12345) == 12345
    assert copies.rounded(77) == 77


@pytest.fixture
def pinned() -> HostCopies:
    """With 512 MiB of it."""
    copies = HostCopies(torch.device("cuda"))
    assert copies.take(512 << 20) == 512 << 20
    return copies


@pytest.mark.gpu
def test_a_gpus_copy_is_pinned_and_of_the_moment_in_which_it_was_begun(pinned):
    """Though what it is made of is written to, in the engine's stream, right behind."""
    source = torch.arange(1 << 24, device="cuda", dtype=torch.float32)
    want = source.cpu()
    copy = pinned.begin({"a": source, "empty": source[:0]})
    copy.wait()
    source.zero_()
    assert copy.done
    held = copy.wait()["a"]
    assert all(torch.from_numpy(piece).is_pinned() for piece in held.pieces)
    assert torch.equal(held.contiguous(), want)
    assert torch.equal(pinned.back(copy.wait())["a"].cpu(), want)


@pytest.mark.gpu
def test_what_a_gpus_copy_is_made_of_may_be_let_go_of_at_once(pinned):
    """Its memory is not given to others before the copy is whole; in pages and in plain memory."""
    for number in range(20):
        for begin in (pinned.begin, pinned.apart):
            source = torch.full((1 << 24,), float(number), device="cuda")
            copy = begin({"a": source})
            del source
            torch.full((1 << 24,), -1.0, device="cuda")
            assert copy.wait()["a"].contiguous().unique().tolist() == [float(number)]


@pytest.mark.gpu
def test_room_of_a_copy_that_is_let_go_of_is_used_by_the_next_one(pinned):
    """Also where it is all the room that there is; no bit is mixed."""
    sources = [torch.full((1 << 27,), float(i), device="cuda") for i in range(3)]  # 512 MiB each
    for source in sources:
        copy = pinned.begin({"a": source})
        back = pinned.back(copy.wait())
        del copy
        again = pinned.begin({"a": sources[0]})
        del again
        assert back["a"].unique().tolist() == source[:1].tolist()


@pytest.mark.gpu
def test_nothing_is_pinned_after_start_and_bits_are_right_beside_decode():
    """Parked, decoded on, brought back both ways, again and again: torch pins nothing more."""
    engine, oracle = (make_drafted(device="cuda", dtype=torch.bfloat16) for _ in range(2))
    engine.take_host(64 << 20)
    prompt = [id_ % 60 for id_ in range(300)]
    list(engine.prefill(prompt, (256,)))
    list(oracle.prefill(prompt, (256,)))
    capsule, want = engine.snapshot(), oracle.snapshot()
    text = take(oracle, 40)
    take(engine, 40)
    before = torch.cuda.host_memory_stats()["num_host_alloc"]
    for lifts in (False, True):
        engine.restore(capsule)
        copies = [engine.to_host(part) for part in (capsule.state, capsule.rows[0].buffers)]
        assert take(engine, 40) == text
        state, rows = (copy.wait() for copy in copies)
        if lifts:
            state, rows = engine.to_device(state), engine.to_device(rows)
        block = RowBlock(0, capsule.rows[0].packed, rows, capsule.rows[0].block_bytes)
        elsewhere = attrs.evolve(capsule, state=state, rows=(block,))
        engine.reset()
        engine.restore(elsewhere)
        assert same_capsule(engine.snapshot(), want)
        assert take(engine, 40) == text
    assert torch.cuda.host_memory_stats()["num_host_alloc"] == before
