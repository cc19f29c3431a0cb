"""The moves up: what is restored comes back to the fastest tier that has room for it."""

import pytest

from flashrt.engine.fake import PAGE_BYTES
from flashrt.errors import DiskFault
from flashrt.policy.lifting import restored
from flashrt.policy.steps import Fetch, Lift, Performer, Restore
from flashrt.policy.tiers import Tier
from tests.policy.test_filing import again, bench, settled
from tests.policy.test_holding import Bench, size


def restore(bench, entry, fails=()):
    """The steps that were made; a step of a kind in `fails` is not."""
    steps, performer, made = restored(bench.store, entry), Performer(bench.engine), []
    try:
        step = next(steps)
        while True:
            made.append(type(step))
            if isinstance(step, fails):
                step = steps.throw(MemoryError("planned"))
            else:
                step = steps.send(performer.perform(step))
    except StopIteration:
        return made


def two(**wish):
    """A bench with room for one capsule on the device: the first has moved on."""
    bench = Bench(device=size(9), **wish)
    return bench, bench.keep(bench.capsule(1)), bench.keep(bench.capsule(2))


def test_from_the_host_it_comes_back_and_another_one_moves_on():
    """Lifted first, then restored within the device."""
    bench, first, second = two()
    assert restore(bench, first) == [Lift, Restore]
    assert (first.tier, second.tier) == (Tier.DEVICE, Tier.HOST)
    assert tuple(bench.engine.journal) == (1,) * 9
    assert bench.store.report()["promoted"] == 1


def test_without_room_it_is_restored_from_the_host():
    """The other one is pinned."""
    bench, first, second = two()
    bench.store.pin(second.key, budget_bytes=10**6)
    assert restore(bench, first) == [Restore]
    assert (first.tier, second.tier) == (Tier.HOST, Tier.DEVICE)
    assert tuple(bench.engine.journal) == (1,) * 9


def test_memory_that_is_short_for_lifting_is_only_slow():
    """It is restored from where it lies, and stays there."""
    bench, first, _ = two()
    assert restore(bench, first, fails=Lift) == [Lift, Restore]
    assert first.tier is Tier.HOST
    assert tuple(bench.engine.journal) == (1,) * 9
    assert bench.store.report()["copy_faults"] == 1


def filed(**wish):
    """A bench after a start, and its one entry, which lies on disk."""
    old = bench()
    old.keep(old.capsule(1))
    new = again(settled(old), **wish)
    return new, *new.store.entries()


@pytest.mark.parametrize(
    ("device", "host", "tier", "steps"),
    [
        (10**6, 10**6, Tier.DEVICE, [Fetch, Lift, Restore]),
        (8, 10**6, Tier.HOST, [Fetch, Restore]),
        (8, 8, Tier.DISK, [Fetch, Restore]),
    ],
)
def test_from_a_file_it_comes_to_the_fastest_tier_with_room(device, host, tier, steps):
    """And is counted there by its real size; where there is none, nothing of it is held."""
    new, entry = filed(device=device, host=host)
    assert restore(new, entry) == steps
    assert entry.tier is tier
    assert tuple(new.engine.journal) == (1,) * 9
    used = (new.store.footprint(), new.store.host_footprint())
    assert used == (size(9) * (tier is Tier.DEVICE), size(9) * (tier is Tier.HOST))
    assert bool(entry.capsule.state) == (tier is not Tier.DISK)


def test_rows_that_lie_in_memory_are_not_read():
    """Only the state of a second capsule of one line is."""
    old = bench()
    old.keep(old.capsule(1))
    long = old.keep(old.capsule(1, more=4))
    new = again(settled(old))
    short_, long_ = sorted(new.store.entries(), key=lambda entry: entry.position)
    restore(new, long_)
    new.store._filer.shelf.blocks.clear()
    assert restore(new, short_) == [Fetch, Lift, Restore]
    assert tuple(new.engine.journal) == long.capsule.tokens[:9]


@pytest.mark.parametrize("fault", ["read", "from_bytes"])
def test_a_file_that_cannot_be_used_is_said_and_nothing_is_held_of_it(fault):
    """The caller lets go of the entry, and plans anew."""
    new, entry = filed()
    new.engine.faults[fault] = new.store._filer.shelf.faults[fault] = 1
    with pytest.raises((DiskFault, ValueError)):
        restore(new, entry)
    assert new.store.footprint() == new.store.host_footprint() == 0
    assert entry.capsule.state == {}
    new.store.drop(entry, damaged=True)
    assert not new.store._filer.shelf.files


def test_a_pin_needs_a_place_in_memory():
    """The refusal says how it gets one."""
    new, entry = filed()
    refusal = new.store.pin(entry.key, budget_bytes=10**6)
    assert "brings it back" in refusal.reason
    restore(new, entry)
    assert new.store.pin(entry.key, budget_bytes=10**6) is None


def test_what_was_read_stays_on_the_host_in_memory_that_was_taken():
    """In pages, a copy: what reading took is nobody's; where no copy can be made, nothing stays."""
    for fails in (False, True):
        new, entry = filed(device=8)
        new.engine.take_host(10**6)
        new.engine.faults["to_host"] += fails
        restore(new, entry)
        assert tuple(new.engine.journal) == (1,) * 9
        assert entry.tier is (Tier.DISK if fails else Tier.HOST)
        assert new.store.host_footprint() == (0 if fails else 3 * PAGE_BYTES)
        assert new.engine.host_bytes(1) == PAGE_BYTES
