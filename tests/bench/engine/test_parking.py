"""What decode pays for a state that is copied beside it."""

from flashrt.bench.engine import parking
from flashrt.bench.engine.parking import Parking
from tests.bench.engine.subjects import bounds, subject, wishes


def test_steps_are_measured_with_and_without_a_copy_beside_them():
    """Of the same state, at each length; what was copied is all of it."""
    options = wishes(context=(70, 130), repeat=3)
    assert parking.window(options) <= subject().engine.info.max_seq

    found = list(parking.measure(subject(), options, bounds()))

    lines = ("parked", "decode, nothing beside it", "decode, a state being parked")
    assert [(f.work, f.context) for f in found] == [(w, n) for n in (70, 130) for w in lines]
    assert found[3].more["mb"] == subject().capsule_of(130).capsule_bytes / 1e6
    for alone, beside in (found[1:3], found[4:6]):
        assert alone.count == beside.count == 3
        assert alone.bound_ms == beside.bound_ms == bounds().step_ms(1, alone.context)
        assert beside.more["against_alone"] == beside.ms / alone.ms
        assert beside.more["begun_ms"] > 0


def test_one_state_is_under_way_at_a_time():
    """The next is begun when the one before is whole."""
    beside = Parking(subject(), subject().capsule_of(70))
    beside()
    first = list(beside.under_way)
    beside()
    assert len(beside.begun_ms) == 2  # on a CPU a copy is whole at once
    assert not {*map(id, first)} & {*map(id, beside.under_way)}
    beside.under_way[0] = Unready()
    beside()
    assert len(beside.begun_ms) == 2


class Unready:
    """A copy that is still being made."""

    done = False
