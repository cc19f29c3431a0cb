"""States that go over the bus."""

import attrs
import pytest
import torch

from flashrt.bench.engine.bus import Bus, begun, moved, parts, take_room
from flashrt.bench.engine.machine import Clock
from flashrt.errors import CannotServe
from tests.bench.engine.subjects import subject


def test_the_bus_has_a_speed_each_way():
    """A bound is what so many bytes take at it."""
    bus = Bus.measured(Clock(torch.device("cpu")))
    assert all(1e6 < rate < 1e15 for rate in attrs.astuple(bus))
    assert Bus(2e9, 1e9).away_ms(2_000_000) == 1
    assert Bus(2e9, 1e9).back_ms(2_000_000) == 2


def test_a_moved_state_is_the_same_state():
    """All its parts are copies of their own."""
    engine, capsule = subject().engine, subject().capsule_of(70)
    there = moved(capsule, [copy.wait() for copy in begun(subject(), capsule)])
    for mine, its in zip(parts(there), parts(capsule), strict=True):
        assert all(mine[name] is not its[name] for name in its)
    engine.reset()
    engine.restore(there)
    assert engine.position == 70
    assert engine.snapshot().tokens == capsule.tokens


def test_a_host_without_room_is_told_of(monkeypatch):
    """Before anything is measured."""
    monkeypatch.setattr(subject().engine, "take_host", lambda size: size // 2)
    with pytest.raises(CannotServe, match=r"a state of 70 tokens needs.*--context"):
        take_room(subject(), 70)
