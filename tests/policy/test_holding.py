"""What gives way to what, between the engine's memory, the host's and files."""

import pytest

from flashrt.engine.fake import PAGE_BYTES
from flashrt.fsm.capsule import CapsuleState
from flashrt.policy.capsules import CapsuleStore
from flashrt.policy.entries import FileState
from flashrt.policy.spacing import Kind
from flashrt.policy.tiers import Tier
from tests.policy.faulty import FaultyEngine
from tests.policy.shelves import MemoryShelf

ROOM = 10**9
IDS_BYTES, STATE_BYTES = 8, 8


class Bench:
    """A store over an engine; capsules of `count` rows, whose first ids tell them apart."""

    def __init__(self, device=ROOM, host=ROOM, shelf=None):
        self.engine = FaultyEngine(max_seq=4096)
        self.store = CapsuleStore(device, host, self.engine, shelf)

    def capsule(self, first, count=9, more=0):
        if not more:
            self.engine.reset()
            list(self.engine.prefill([first] * count))
        else:
            list(self.engine.prefill([first] * more))
        return self.engine.snapshot()

    def keep(self, capsule, **wish):
        facts = {"namespace": "a", "session": "s", "kind": Kind.CUT, "turn": 1, "lineage": ()}
        return self.store.put(capsule, **{**facts, **wish})


def size(count, states=1):
    return states * STATE_BYTES + count * IDS_BYTES


def tiers(*entries):
    return [entry.tier for entry in entries]


def test_what_has_no_room_moves_to_the_host_and_its_memory_is_free():
    """The one that is worth least, with its rows; nothing of it is lost."""
    bench = Bench(device=2 * size(9))
    entries = [bench.keep(bench.capsule(first)) for first in (1, 2, 3)]
    assert tiers(*entries) == [Tier.HOST, Tier.DEVICE, Tier.DEVICE]
    assert bench.store.footprint() == 2 * size(9)
    assert bench.store.host_footprint() == size(9)
    assert list(entries[0].capsule.rows[0].buffers["processed"]) == [1] * 9
    assert bench.store.report()["offloaded"] == 1
    assert bench.store.report()["evicted"] == 0


def test_out_of_the_last_tier_it_is_gone():
    """The host is full too, and there is no disk."""
    bench = Bench(device=size(9), host=size(9))
    entries = [bench.keep(bench.capsule(first)) for first in (1, 2, 3)]
    assert tiers(*entries) == [None, Tier.HOST, Tier.DEVICE]
    assert entries[0].machine.state is CapsuleState.GONE


def test_shared_rows_stay_with_the_fastest_of_their_users():
    """And move, counted once, when it goes."""
    bench = Bench(device=ROOM)
    short = bench.keep(bench.capsule(1))
    long = bench.keep(bench.capsule(1, more=4))
    short.first_to_go = True
    assert bench.store.evict_lru() is short
    assert tiers(short, long) == [Tier.HOST, Tier.DEVICE]
    assert bench.store.host_footprint() == STATE_BYTES
    bench.store.drop(long)
    assert bench.store.footprint() == 0
    assert bench.store.host_footprint() == size(9)


@pytest.mark.parametrize("fault", ["to_host", "copy"])
def test_a_copy_that_fails_costs_the_one_capsule_its_place(fault):
    """When it is begun, or while it is made."""
    bench = Bench(device=size(9))
    first = bench.keep(bench.capsule(1))
    bench.engine.faults[fault] = 1
    second = bench.keep(bench.capsule(2))
    assert tiers(first, second) == [None, Tier.DEVICE]
    assert bench.store.host_footprint() == 0
    assert bench.store.report()["copy_faults"] == 1


def test_rows_that_cannot_follow_cost_those_who_need_them():
    """A host without room for the rows of an entry that it holds."""
    bench = Bench(device=ROOM, host=size(4))
    short = bench.keep(bench.capsule(1))
    long = bench.keep(bench.capsule(1, more=4))
    short.first_to_go = True
    assert bench.store.evict_lru() is short
    assert tiers(short, long) == [Tier.HOST, Tier.DEVICE]
    bench.store.drop(long)
    assert tiers(short) == [None]
    assert bench.store.host_footprint() == bench.store.footprint() == 0


def test_copies_for_room_that_will_be_wanted_run_beside_the_work():
    """Until one is whole, its capsule is where it was; nobody waits for it."""
    bench = Bench(device=2 * size(9))
    first, second = (bench.keep(bench.capsule(number)) for number in (1, 2))
    bench.store.settle(headroom_bytes=size(9))
    assert first.machine.state is CapsuleState.LEAVING
    assert bench.store.footprint() == 2 * size(9)
    assert bench.store.host_footprint() == size(9)
    bench.store.settle(headroom_bytes=size(9))
    assert first.machine.state is CapsuleState.LEAVING
    bench.engine.finish_copies()
    bench.store.settle(headroom_bytes=size(9))
    assert tiers(first, second) == [Tier.HOST, Tier.DEVICE]
    assert bench.store.footprint() == size(9)


def test_what_is_used_again_on_its_way_out_stays():
    """And the room that its copy took is free."""
    bench = Bench(device=2 * size(9))
    first = bench.keep(bench.capsule(1))
    bench.keep(bench.capsule(2))
    bench.store.settle(headroom_bytes=size(9))
    bench.store.use(first)
    assert first.machine.state is CapsuleState.DEVICE
    assert bench.store.host_footprint() == 0


def test_room_that_is_needed_now_waits_for_the_copy_that_is_under_way():
    """Rather than to let go of another one."""
    bench = Bench(device=2 * size(9))
    first = bench.keep(bench.capsule(1))
    bench.keep(bench.capsule(2))
    bench.store.settle(headroom_bytes=size(9))
    copy = bench.engine.under_way[0]()
    third = bench.keep(bench.capsule(3))
    assert tiers(first, third) == [Tier.HOST, Tier.DEVICE]
    assert copy.done


def test_what_has_a_file_leaves_memory_for_nothing():
    """No copy is made where the host has no room; without its file it would be gone."""
    bench = Bench(device=size(9), host=0, shelf=MemoryShelf())
    first = bench.keep(bench.capsule(1))
    bench.store.write_behind()
    bench.store.write_behind()
    bench.engine.finish_copies()
    bench.store.write_behind()
    bench.store.write_behind()
    assert first.file is FileState.WHOLE
    second = bench.keep(bench.capsule(2))
    assert tiers(first, second) == [Tier.DISK, Tier.DEVICE]
    assert first.capsule.state == first.capsule.rows[0].buffers == {}
    assert bench.store.report()["released"] == 1


def test_too_large_for_the_engines_memory_it_is_kept_on_the_host():
    """A parked conversation needs none of it; what it shares is not copied again."""
    bench = Bench(device=size(9))
    first = bench.keep(bench.capsule(1))
    second = bench.keep(bench.capsule(1, more=5))
    assert tiers(first, second) == [Tier.DEVICE, Tier.HOST]
    assert bench.store.host_footprint() == size(5)
    bench.store.drop(first)
    assert tiers(second) == [Tier.HOST]
    assert bench.store.host_footprint() == size(14)


def test_each_tier_ages_by_itself():
    """What came to the host last is not the first to leave it."""
    bench = Bench(device=size(9), host=2 * size(9))
    entries = [bench.keep(bench.capsule(first)) for first in range(1, 30)]
    assert tiers(*entries[-3:]) == [Tier.HOST, Tier.HOST, Tier.DEVICE]
    roomy = Bench(device=size(9))
    *moved, newest = [roomy.keep(roomy.capsule(first)) for first in range(1, 30)]
    assert newest.used_at > 0
    assert {entry.used_at for entry in moved} == {0.0}


def test_a_pin_holds_in_either_memory():
    """Others go, in the engine's and in the host's."""
    bench = Bench(device=size(9), host=size(9))
    first = bench.keep(bench.capsule(1))
    second = bench.keep(bench.capsule(2))
    assert bench.store.pin(first.key, budget_bytes=ROOM) is None
    assert first.machine.state is CapsuleState.HELD
    third = bench.keep(bench.capsule(3))
    assert tiers(first, second, third) == [Tier.HOST, None, Tier.DEVICE]


def test_short_memory_takes_half_of_the_engines():
    """It moves on, where there is another tier."""
    bench = Bench()
    entries = [bench.keep(bench.capsule(first)) for first in range(1, 5)]
    assert bench.store.shrink()
    assert tiers(*entries) == [Tier.HOST, Tier.HOST, Tier.DEVICE, Tier.DEVICE]


@pytest.mark.parametrize(("spare", "fits"), [(0, True), (-1, False)])
def test_what_the_budget_says_fits_finds_room_in_pages(spare, fits):
    """A state and its rows are rounded up each, so two capsules of 80 bytes take six pages."""
    bench = Bench(device=size(9))
    host = bench.engine.take_host((2 * (1 + 2) + spare) * PAGE_BYTES)
    bench.store = CapsuleStore(size(9), host, bench.engine)
    keys = [bench.keep(bench.capsule(first)).key for first in (1, 2, 3)]
    held = [entry and entry.tier for entry in map(bench.store.get, keys)]
    assert held == [Tier.HOST if fits else None, Tier.HOST, Tier.DEVICE]
    assert bench.store.host_footprint() == (2 if fits else 1) * 3 * PAGE_BYTES
    assert bench.engine.refused == 0
    assert bench.store.report()["copy_faults"] == 0
