"""Blocks that capsules share: what is noted of the live rows, and walks over both engines."""

import contextlib
import copy
import functools
import gc
from collections.abc import Callable

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from flashrt.engine.fake import FakeEngine
from flashrt.engine.protocol import (
    Capsule,
    ContextFull,
    Engine,
    EngineMisuse,
    RowBlock,
    SamplingParams,
)
from flashrt.engine.rowblocks import LiveRows
from tests.engine.contract import PROMPT, fill, same_capsule, take
from tests.engine.drafted import make_drafted
from tests.engine.models import Shape
from tests.engine.sharing import held_bytes


def rows_until(live: LiveRows, position: int) -> tuple[RowBlock, ...]:
    """Blocks for a snapshot there."""
    return live.covering(position, range(99), lambda a, b: {"x": np.arange(a, b)})


def bounds(rows: tuple[RowBlock, ...]) -> list[tuple[int, int]]:
    return [(row.start, row.stop) for row in rows]


def test_only_rows_that_no_block_holds_are_copied():
    """Blocks follow each other; nothing is copied twice, and no block is empty."""
    live = LiveRows()
    first = rows_until(live, 5)
    second = rows_until(live, 9)
    assert bounds(second) == [(0, 5), (5, 9)]
    assert second[0] is first[0]
    assert rows_until(live, 9) == second == rows_until(live, 7)
    assert rows_until(live, 3) == first
    assert second[1].block_bytes == second[1].buffers["x"].nbytes == 32
    assert live.missing(9) == 9
    assert live.missing(12) == 9


def test_a_block_cut_short_is_shared_below_the_cut_only():
    """And replaced by one that begins where it began; the cut is never taken back."""
    live = LiveRows()
    held = rows_until(live, 5), rows_until(live, 9)
    live.cut(7)
    live.cut(20)
    assert live.shared(7) == held[1]
    assert live.shared(8) == held[0]
    assert bounds(rows_until(live, 8)) == [(0, 5), (5, 8)]
    live.cut(2)
    assert [live.missing(position) for position in (2, 3)] == [5, 0]


def test_behind_a_dead_block_nothing_is_shared():
    """Only capsules keep blocks alive."""
    live = LiveRows()
    first = rows_until(live, 5)
    rows_until(live, 9)
    gc.collect()
    last = rows_until(live, 12)
    assert bounds(last) == [(0, 5), (5, 12)]
    assert last[0] is first[0]
    live.clear()
    assert live.shared(5) == ()


def test_a_restore_keeps_only_equal_objects_as_far_as_needed():
    """Another block of the same rows, or one that was cut below the need, is loaded."""
    live, other = LiveRows(), LiveRows()
    rows_until(live, 5)
    mine = (*rows_until(live, 5), *rows_until(live, 9)[1:])
    live.hold(mine, 9)
    theirs = (*rows_until(other, 5), *rows_until(other, 9)[1:])
    assert (live.kept(mine, 9), live.kept(theirs, 9)) == (2, 0)
    live.cut(7)
    assert [live.kept(mine, position) for position in (7, 8)] == [2, 1]
    live.hold(mine, 6)
    assert [live.kept(mine, position) for position in (6, 7)] == [2, 1]


def test_a_block_is_saved_with_its_mtp_slots_filled():
    """Decoded without drafts, slots wait: a snapshot is the one of an engine that filled them."""
    engine, other = small(torch.float32)
    for one in (engine, other):
        one.reset()
        fill(one, PROMPT[:20])
        for _, _chunk in zip(range(9), one.decode(SamplingParams(draft_tokens=0)), strict=False):
            pass
    other._live.mtp.settle(other.position)
    assert engine._live.mtp.filled < other._live.mtp.filled == other.position - 1
    assert same_capsule(engine.snapshot(), other.snapshot())


KINDS = ("prefill", "decode", "rollback", "snapshot", "shorter", "restore", "drop", "reset")
STEPS = st.lists(
    st.tuples(
        st.sampled_from(KINDS),
        st.integers(1, 40),
    ),
    min_size=3,
    max_size=14,
)
Path = tuple[tuple[str, int], ...]


class Walk:
    """One engine, its capsules, and for each the path from nothing that leads to it."""

    def __init__(self, engine: Engine, fresh: Callable[[], Engine]) -> None:
        self.engine, self.fresh = engine, fresh
        self.path: Path = ()
        self.saved: list[tuple[Capsule, Path, int | None]] = []

    def step(self, kind: str, n: int) -> None:
        """One step. What is refused changes nothing, so it is no part of the path."""
        with contextlib.suppress(EngineMisuse, ContextFull):
            self._step(kind, n)

    def _step(self, kind: str, n: int) -> None:
        match kind:
            case "snapshot" | "shorter":
                at = self.engine.position - n if kind == "shorter" else None
                foretold = self.engine.snapshot_bytes(at)
                before = held_bytes(saved[0] for saved in self.saved)
                self.saved.append((self.engine.snapshot(at), self.path, at))
                assert held_bytes(saved[0] for saved in self.saved) == before + foretold
            case "restore" if self.saved:
                capsule, path, at = self.saved[n % len(self.saved)]
                self.engine.restore(capsule)
                self.path = (*path, ("restore", at or 0))
            case "drop" if self.saved:
                del self.saved[n % len(self.saved)]
            case "reset":
                self.engine.reset()
                self.path = ()
            case "prefill" | "decode" | "rollback":
                advance(self.engine, kind, n)
                self.path = (*self.path, (kind, n))

    def check(self) -> None:
        """Every capsule, and the live state, is that of its path, walked alone."""
        for capsule, path, at in self.saved:
            assert same_capsule(capsule, repeated(self.fresh(), path).snapshot(at))
        if self.engine.position:
            end = repeated(self.fresh(), self.path).snapshot()
            assert same_capsule(self.engine.snapshot(), end)
        for capsule, _, _ in self.saved[-2:]:
            self.engine.restore(capsule)
            assert same_capsule(self.engine.snapshot(), capsule)


def advance(engine: Engine, kind: str, n: int) -> None:
    """A step that needs no capsule."""
    if kind == "prefill":
        fill(engine, PROMPT[n : 2 * n])
    elif kind == "decode":
        take(engine, n % 12 + 1)
    else:
        engine.rollback(n % 12)


def repeated(engine: Engine, path: Path) -> Engine:
    """The engine at the end of a path; a restore there is one of a capsule of its own."""
    engine.reset()
    for kind, n in path:
        if kind == "restore":
            capsule = engine.snapshot(n or None)
            engine.reset()
            engine.restore(capsule)
        else:
            advance(engine, kind, n)
    return engine


def walked(engine: Engine, fresh: Callable[[], Engine], steps: list[tuple[str, int]]) -> None:
    engine.reset()
    walk = Walk(engine, fresh)
    for kind, n in [("prefill", 30), ("snapshot", 0), *steps]:
        walk.step(kind, n)
    walk.check()


@settings(max_examples=150, deadline=None)
@given(STEPS)
def test_whatever_is_shared_on_the_fake_the_path_decides(steps):
    """Snapshots, drops and detours in any order: every capsule is the one of its path alone."""
    walked(FakeEngine(burst_max=4), FakeEngine, steps)


@functools.cache
def small(dtype: torch.dtype) -> tuple[Engine, Engine]:
    engine = make_drafted(Shape(layers=2, interval=2), dtype=dtype, max_seq=256)
    return engine, copy.deepcopy(engine)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@settings(max_examples=8, deadline=None, derandomize=True)
@example([("reset", 1), ("prefill", 33), ("snapshot", 1), ("decode", 9), ("restore", 0)])
@given(STEPS)
def test_whatever_is_shared_on_the_real_engine_the_path_decides(dtype, steps):
    """The same, bit for bit, with the slots of the MTP layer."""
    engine, other = small(dtype)
    walked(engine, lambda: other, steps)
