"""Capsules made up for tests of the disk room, small and of every shape."""

import random
from collections.abc import Sequence
from pathlib import Path

import attrs
from hypothesis import strategies as st

from flashrt.disk import Buffers, CapsuleDirectory, Filed, HostBuffer
from flashrt.disk.filed import ID_BYTES
from flashrt.disk.tensors import DTYPES

IDENTITY = "weights, configuration, dtype and code"
BUDGET_BYTES = 1 << 30


@attrs.frozen
class Made:
    """What `CapsuleDirectory.write` takes."""

    filed: Filed
    state: Buffers
    rows: Sequence[tuple[bytes, Buffers]]


def opened(folder: Path, *, budget_bytes: int | None = BUDGET_BYTES, identity: str = IDENTITY):
    """The directory of capsules of a test, whose clock stands."""
    return CapsuleDirectory(folder / "capsules", identity, budget_bytes, clock=lambda: 1000.0)


def made(key: str = "k", *, seed: int = 0, blocks: int = 2, kib: int = 1) -> Made:
    """A capsule of `blocks` row blocks; equal seeds give equal rows, the state is the key's own."""
    dice, own = random.Random(seed), random.Random(key)
    rows = []
    for _ in range(blocks):
        values = HostBuffer("bfloat16", (8, kib, 64), dice.randbytes(8 * kib * 128))
        rows.append((dice.randbytes(8 * ID_BYTES), {"kv": values}))
    state = {
        "anchors": HostBuffer("float32", (kib, 256), own.randbytes(kib * 1024)),
        "length": HostBuffer("int64", (), own.randbytes(8)),
    }
    return Made(facts(key, position=max(0, 8 * blocks - 1)), state, rows)


def facts(key: str, *, position: int) -> Filed:
    """The manifest of a capsule without its rows."""
    return Filed(
        key=key,
        namespace="bearer:secret",
        session="s1",
        kind="committed",
        turn=3,
        position=position,
        pending=7,
        lineage=((position, False, (1, 2)),),
        saved_at=12.5,
    )


def put(directory: CapsuleDirectory, capsule: Made) -> Filed:
    """Write it; as it is filed."""
    return directory.write(capsule.filed, capsule.state, capsule.rows).filed


def same(read: Buffers | None, written: Buffers) -> bool:
    """Whether two lots of buffers are the same to the last byte."""
    if read is None or set(read) != set(written):
        return False
    return all(
        (one.dtype, one.shape, bytes(one.data))
        == (written[name].dtype, written[name].shape, bytes(written[name].data))
        for name, one in read.items()
    )


def holds(directory: CapsuleDirectory, capsule: Made) -> bool:
    """Whether what is read is what was written."""
    filed, state, rows = directory.read(capsule.filed.key)
    told = attrs.evolve(filed, rows=(), state_bytes=0)
    return (
        told == capsule.filed
        and same(state, capsule.state)
        and [packed for packed, _ in rows] == [packed for packed, _ in capsule.rows]
        and all(
            same(ours, theirs) for (_, ours), (_, theirs) in zip(rows, capsule.rows, strict=True)
        )
    )


@st.composite
def buffers(draw: st.DrawFn) -> HostBuffer:
    """Any dtype, up to three dimensions, some of them of no length."""
    dtype = draw(st.sampled_from(sorted(DTYPES)))
    shape = tuple(draw(st.lists(st.integers(0, 4), max_size=3)))
    size = DTYPES[dtype][1]
    for length in shape:
        size *= length
    return HostBuffer(dtype, shape, draw(st.binary(min_size=size, max_size=size)))


NAMED_BUFFERS = st.dictionaries(
    st.text(st.characters(codec="utf-8"), max_size=8), buffers(), max_size=4
)
IDS = st.integers(-(2**31), 2**31 - 1)
WORDS = st.text(st.characters(codec="utf-8"), max_size=12)


@st.composite
def capsules(draw: st.DrawFn) -> Made:
    """Any capsule that a store could want to keep."""
    counts = draw(st.lists(st.integers(1, 5), max_size=4))
    rows = [
        (draw(st.binary(min_size=n * ID_BYTES, max_size=n * ID_BYTES)), draw(NAMED_BUFFERS))
        for n in counts
    ]
    last = counts[-1] if counts else 0
    span = st.tuples(st.integers(0, 100), st.booleans(), st.lists(IDS, max_size=3).map(tuple))
    filed = Filed(
        key=draw(WORDS),
        namespace=draw(WORDS),
        session=draw(WORDS),
        kind=draw(WORDS),
        turn=draw(st.integers(0, 1 << 40)),
        position=sum(counts) - (draw(st.integers(0, last - 1)) if last else 0),
        pending=draw(st.none() | IDS),
        lineage=tuple(draw(st.lists(span, max_size=3))),
        saved_at=draw(st.floats(0, 1e12)),
        pinned=draw(st.booleans()),
    )
    return Made(filed, draw(NAMED_BUFFERS), rows)
