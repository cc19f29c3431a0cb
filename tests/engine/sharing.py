"""What every engine must do where capsules share rows: checks as those of the contract."""

import gc
import itertools
import weakref
from collections.abc import Callable, Iterable

import numpy as np
import pytest

from flashrt.engine.protocol import Capsule, Engine, EngineMisuse, SamplingParams, pack_ids
from tests.engine.contract import (
    GREEDY,
    PROMPT,
    SEEDED,
    fill,
    same_bytes,
    same_capsule,
    take,
    whole,
)


def line(engine: Engine, count: int, params: SamplingParams = GREEDY) -> list[Capsule]:
    """Snapshots of one growing state: behind a prompt, then now a prefill, now a decode."""
    fill(engine, PROMPT[:40])
    capsules = [engine.snapshot()]
    for i in range(count - 1):
        if i % 3 == 0:
            fill(engine, PROMPT[i : i + 5])
        else:
            take(engine, 1 + i % 4, params)
        capsules.append(engine.snapshot())
    return capsules


def shared(one: Capsule, other: Capsule) -> int:
    """How many leading blocks are the same objects."""
    pairs = zip(one.rows, other.rows, strict=False)
    return len(list(itertools.takewhile(lambda pair: pair[0] is pair[1], pairs)))


def bits(capsule: Capsule) -> dict[object, np.ndarray]:
    """Every buffer of a capsule of the real engine, as bytes."""
    import torch

    rows = {(r, n): b for r, row in enumerate(capsule.rows) for n, b in row.buffers.items()}
    buffers = {**capsule.state, **rows}
    return {name: b.contiguous().cpu().view(torch.uint8).numpy() for name, b in buffers.items()}


def held_bytes(capsules: Iterable[Capsule]) -> int:
    """Bytes of these capsules, each block counted once."""
    capsules = list(capsules)
    blocks = {id(row): row.block_bytes for capsule in capsules for row in capsule.rows}
    return sum(capsule.state_bytes for capsule in capsules) + sum(blocks.values())


def check_blocks_follow_each_other(engine: Engine, _oracle: Engine) -> None:
    """A capsule's blocks cover its ids without a gap, none is empty, and the ids are theirs."""
    for capsule in line(engine, 8):
        at = 0
        for row in capsule.rows:
            assert (row.start, row.start < row.stop) == (at, True)
            at = row.stop
        assert at == capsule.position
        tokens = capsule.tokens
        assert len(tokens) - capsule.position == (capsule.pending is not None)
        assert capsule.heads(pack_ids(tokens))
        assert capsule.heads(pack_ids([*tokens[: capsule.position], 60, 1]))
        assert not capsule.heads(pack_ids(tokens[: capsule.position - 1]))
        for wrong in (0, 39, capsule.position - 1):
            ids = list(tokens)
            ids[wrong] += 1
            assert not capsule.heads(pack_ids(ids))
    assert capsule.tokens == tuple(engine.journal)


def check_a_line_shares_its_rows(engine: Engine, oracle: Engine) -> None:
    """A later snapshot holds the earlier one's blocks, and newly what was foretold."""
    fill(engine, PROMPT[:40])
    capsules: list[Capsule] = []
    for i in range(6):
        foretold, before = engine.snapshot_bytes(), held_bytes(capsules)
        capsules.append(engine.snapshot())
        assert held_bytes(capsules) - before == foretold
        assert shared(capsules[-1], capsules[max(0, i - 1)]) == len(capsules[max(0, i - 1)].rows)
        if i % 2:
            fill(engine, PROMPT[i : i + 9])
        else:
            take(engine, 7)
    oracle.restore(capsules[-1])
    assert oracle.snapshot_bytes() == capsules[-1].state_bytes
    rows = sum(row.block_bytes for row in capsules[-1].rows)
    assert held_bytes(capsules) == sum(capsule.state_bytes for capsule in capsules) + rows


def check_a_shorter_snapshot_shares(engine: Engine, oracle: Engine) -> None:
    """By length, a block that reaches further is shared; restored, it is cut there."""
    fill(engine, PROMPT[:90])
    longer = engine.snapshot()
    assert engine.snapshot_bytes(71) < longer.capsule_bytes
    shorter = engine.snapshot(71)
    assert shorter.rows == longer.rows
    assert engine.snapshot(71).capsule_bytes == shorter.capsule_bytes
    assert (shorter.tokens, shorter.position) == (PROMPT[:71], 71)
    assert shorter.heads(pack_ids(PROMPT[:71]))
    oracle.restore(longer)
    oracle.restore(shorter)
    fill(oracle, PROMPT[:9])
    later = oracle.snapshot()
    assert shared(later, longer) == 0
    engine.restore(later)
    assert same_capsule(engine.snapshot(), later)
    oracle.restore(longer)
    assert same_capsule(oracle.snapshot(), longer)
    for beyond in (0, 91):
        for ask in (engine.snapshot, engine.snapshot_bytes):
            with pytest.raises(EngineMisuse):
                ask(beyond)
    oracle.reset()
    for ask in (oracle.snapshot, oracle.snapshot_bytes):
        with pytest.raises(EngineMisuse):
            ask()


def check_dropped_capsules_are_free(engine: Engine, _oracle: Engine) -> None:
    """Nothing but capsules holds blocks: where they are gone, a snapshot copies again."""
    capsules = line(engine, 5)
    seen = [weakref.ref(row) for row in capsules[-1].rows]
    tokens = capsules[-1].tokens
    bits = whole(capsules[-1])
    del capsules[1:]
    gc.collect()
    assert [ref() is None for ref in seen] == [False, *[True] * (len(seen) - 1)]
    foretold = engine.snapshot_bytes()
    again = engine.snapshot()
    assert (len(again.rows), again.rows[0] is capsules[0].rows[0]) == (2, True)
    assert foretold == again.state_bytes + again.rows[1].block_bytes
    assert again.tokens == tokens
    assert same_bytes(whole(again), bits)
    del again, capsules
    gc.collect()
    assert not any(ref() for ref in seen)
    assert engine.snapshot_bytes() == engine.snapshot().capsule_bytes


def check_rolled_back_rows_are_not_shared(engine: Engine, oracle: Engine) -> None:
    """Below a block's end, then other ids: nothing of the old text is in the new capsule."""
    fill(engine, PROMPT[:70])
    fill(oracle, PROMPT[:70])
    first = engine.snapshot()
    ids = take(engine, 12)
    old = engine.snapshot()
    engine.rollback(9)
    fill(engine, PROMPT[100:110])
    take(oracle, 3)
    oracle.drop_pending()
    fill(oracle, PROMPT[100:110])
    new = engine.snapshot()
    assert new.tokens == (*PROMPT[:70], *ids[:2], *PROMPT[100:110])
    assert shared(new, old) == len(first.rows) == 1
    assert same_capsule(new, oracle.snapshot())
    engine.restore(old)
    assert same_capsule(engine.snapshot(), old)
    engine.restore(new)
    assert take(engine, 9) == take(oracle, 9)
    assert same_capsule(engine.snapshot(), oracle.snapshot())


def check_a_detour_is_free(engine: Engine, oracle: Engine) -> None:
    """Whatever overwrote the rows in between, a restore brings back every bit."""
    base, capsule = line(engine, 2)

    def other_text() -> None:
        engine.reset()
        fill(engine, PROMPT[60:130])

    def other_branch() -> None:
        engine.restore(base)
        fill(engine, PROMPT[90:120])

    def rolled_back() -> None:
        take(engine, 3)
        engine.rollback(5)
        fill(engine, PROMPT[90:120])

    def sampled() -> None:
        engine.restore(base)
        take(engine, 30, SEEDED)

    oracle.restore(capsule)
    take(oracle, 30, SEEDED)
    for detour in (other_text, other_branch, sampled):
        detour()
        engine.restore(capsule)
        assert same_capsule(engine.snapshot(), capsule)
        take(engine, 30, SEEDED)
        assert same_capsule(engine.snapshot(), oracle.snapshot())
    engine.reset()
    fill(engine, PROMPT[:40])
    fill(engine, PROMPT[:5])
    again = engine.snapshot()
    rolled_back()
    engine.restore(again)
    assert same_capsule(engine.snapshot(), capsule)


def check_chains_are_restored_in_any_order(engine: Engine, oracle: Engine) -> None:
    """Twenty snapshots of a line, forth and back: each is itself, and goes on to the next."""
    capsules = line(engine, 20)
    for i in sorted(range(20), key=lambda i: i * 7 % 20):
        engine.restore(capsules[i])
        assert engine.snapshot_bytes() == capsules[i].state_bytes
        assert same_capsule(engine.snapshot(), capsules[i])
        oracle.reset()
        oracle.restore(capsules[i])
        assert take(engine, 3) == take(oracle, 3)
        assert same_capsule(engine.snapshot(), oracle.snapshot())


SHARING: list[Callable[[Engine, Engine], None]] = [
    check_blocks_follow_each_other,
    check_a_line_shares_its_rows,
    check_a_shorter_snapshot_shares,
    check_dropped_capsules_are_free,
    check_rolled_back_rows_are_not_shared,
    check_a_detour_is_free,
    check_chains_are_restored_in_any_order,
]
