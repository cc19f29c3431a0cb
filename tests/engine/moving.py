"""What every engine must do where capsules lie elsewhere: checks as those of the contract."""

import weakref
from collections.abc import Callable, Mapping
from typing import Any

import attrs
import numpy as np
import pytest

from flashrt.engine.arena import Arena
from flashrt.engine.protocol import Capsule, Engine, EngineMisuse, RawBuffer, RowBlock
from tests.engine.contract import GREEDY, PROMPT, fill, same_bytes, same_capsule, take
from tests.engine.sharing import line


def moved(capsule: Capsule, move: Callable[[Mapping[str, Any]], Mapping[str, Any]]) -> Capsule:
    """The capsule with all its buffers elsewhere."""
    rows = [RowBlock(r.start, r.packed, move(r.buffers), r.block_bytes) for r in capsule.rows]
    return attrs.evolve(capsule, state=move(capsule.state), rows=tuple(rows))


def scattered(size_bytes: int, page_bytes: int) -> Arena:
    """Room for so many bytes, no two pages of which lie together."""
    pages = -(-size_bytes // page_bytes)
    return Arena([np.zeros(page_bytes, np.uint8) for _ in range(pages)], page_bytes)


def joined(raw: Mapping[str, RawBuffer]) -> dict[str, bytes]:
    """The bytes of each, in one piece."""
    return {name: b"".join(buffer.pieces) for name, buffer in raw.items()}


def filed(engine: Engine, buffers: Mapping[str, Any]) -> Mapping[str, Any]:
    """As they come back from a file."""
    raw = engine.to_bytes(engine.to_host(buffers).wait())
    return engine.from_bytes(
        {
            name: RawBuffer(b.dtype, b.shape, bytearray(b"".join(b.pieces)))
            for name, b in raw.items()
        }
    )


MOVES: dict[str, Callable[[Engine], Callable[[Mapping[str, Any]], Mapping[str, Any]]]] = {
    "host": lambda engine: lambda buffers: engine.to_host(buffers).wait(),
    "bytes": lambda engine: lambda buffers: filed(engine, buffers),
    "back": lambda engine: lambda buffers: engine.to_device(engine.to_host(buffers).wait()),
}


def check_moved_capsules_are_the_same(engine: Engine, oracle: Engine) -> None:
    """In host memory, out of bytes, and back on the device: each is restored bit for bit."""
    capsules = line(engine, 8)
    for name, how in MOVES.items():
        for capsule in (capsules[3], capsules[7]):
            elsewhere = moved(capsule, how(engine))
            assert same_capsule(elsewhere, capsule), name
            engine.restore(elsewhere)
            assert same_capsule(engine.snapshot(), capsule), name
            oracle.reset()
            oracle.restore(capsule)
            assert take(engine, 3) == take(oracle, 3), name


def check_some_buffers_may_lie_elsewhere(engine: Engine, oracle: Engine) -> None:
    """Rows that others hold on the device, and a state on the host."""
    capsule = line(engine, 6)[5]
    first, *rest = capsule.rows
    on_host = moved(attrs.evolve(capsule, rows=(first,)), MOVES["host"](engine))
    mixed = attrs.evolve(on_host, rows=(on_host.rows[0], *rest))
    for one in (engine, oracle):
        one.reset()
    engine.restore(mixed)
    oracle.restore(capsule)
    assert take(engine, 9) == take(oracle, 9)
    assert same_capsule(engine.snapshot(), oracle.snapshot())


def check_a_copy_is_apart(engine: Engine, _oracle: Engine) -> None:
    """It holds nothing of what it was made from, and stays when that is overwritten."""
    fill(engine, PROMPT[:100])
    capsule = engine.snapshot()
    copy = engine.to_host(capsule.rows[0].buffers)
    kept = dict(copy.wait())
    want = joined(engine.to_bytes(copy.wait()))
    assert copy.done
    gone = [weakref.ref(buffer) for buffer in capsule.rows[0].buffers.values()]
    del capsule, copy
    assert [ref() for ref in gone] == [None] * len(gone)
    fill(engine, PROMPT[:60])
    assert joined(engine.to_bytes(kept)) == want


def check_rows_are_filled_again(engine: Engine, _oracle: Engine) -> None:
    """A block that the live state is equal to, whatever became of its buffers; and no other."""
    fill(engine, PROMPT[:90], (64,))
    capsule = engine.snapshot()
    (block,) = capsule.rows
    before = dict(block.buffers)
    block.buffers = {}
    take(engine, 4, GREEDY)
    assert same_bytes(dict(engine.refill(block)), before)
    later = engine.snapshot()
    assert later.rows[0] is block
    with pytest.raises(EngineMisuse):
        engine.refill(RowBlock(0, block.packed, {}, block.block_bytes))
    block.buffers = before
    engine.restore(engine.snapshot(80))
    fill(engine, PROMPT[:20])
    with pytest.raises(EngineMisuse):
        engine.refill(block)


def check_strange_bytes_are_refused(engine: Engine, _oracle: Engine) -> None:
    """Another dtype, or another number of bytes than the shape has."""
    fill(engine, PROMPT[:70])
    raw = dict(engine.to_bytes(engine.to_host(engine.snapshot().rows[0].buffers).wait()))
    name, good = next(iter(raw.items()))
    whole = b"".join(good.pieces)
    for bad in (
        attrs.evolve(good, dtype="float8"),
        attrs.evolve(good, data=whole[:-1]),
        attrs.evolve(good, data=whole + b"\0"),
    ):
        with pytest.raises(ValueError, match=r"\w"):
            engine.from_bytes({**raw, name: bad})


MOVING: list[Callable[[Engine, Engine], None]] = [
    check_moved_capsules_are_the_same,
    check_some_buffers_may_lie_elsewhere,
    check_a_copy_is_apart,
    check_rows_are_filled_again,
    check_strange_bytes_are_refused,
]
