"""Write-behind: what is handed over, in which order, and what is known again after a start."""

import pytest

from flashrt.policy.capsules import CapsuleStore
from flashrt.policy.entries import FileState, packed_of
from flashrt.policy.spacing import Kind
from flashrt.policy.tiers import Tier
from tests.policy.shelves import MemoryShelf
from tests.policy.test_holding import Bench, size


def bench(shelf=None, **wish):
    return Bench(shelf=shelf or MemoryShelf(), **wish)


def settled(bench):
    """All is written that can be."""
    for _ in range(100):
        bench.engine.finish_copies()
        bench.store.write_behind()
        bench.store._filer.shelf.write()
    return bench


def again(old, **wish):
    """Another process on the same directory."""
    new = bench(old.store._filer.shelf, **wish)
    new.store.adopt(old.store._filer.shelf.filed(), new.engine.info.identity)
    return new


def test_nobody_waits_for_a_file():
    """A capsule has none until its bytes are on the host, and then until the writer is done."""
    one = bench(MemoryShelf(at_once=False))
    entry = one.keep(one.capsule(1))
    assert one.store.write_behind()
    assert not one.store._filer.shelf.waiting
    one.engine.finish_copies()
    assert one.store.write_behind()
    assert len(one.store._filer.shelf.waiting) == 1
    assert entry.file is FileState.BEGUN
    one.store._filer.shelf.write()
    assert not one.store.write_behind()
    assert entry.file is FileState.WHOLE


def test_shared_rows_are_written_once():
    """Behind the first file their name is enough; what two files name stays while one does."""
    one = bench()
    short = one.keep(one.capsule(1))
    settled(one)
    long = one.keep(one.capsule(1, more=4))
    settled(one)
    shelf = one.store._filer.shelf
    assert len(shelf.blocks) == 2
    assert shelf.size == size(13, states=2)
    one.store.drop(short)
    assert len(shelf.blocks) == 2
    one.store.drop(long)
    assert shelf.size == 0


def test_rows_whose_only_file_has_gone_are_written_again():
    """Before the next capsule of their line had one of its own."""
    one = bench()
    short = one.keep(one.capsule(1))
    settled(one)
    long = one.keep(one.capsule(1, more=4))
    one.store.drop(short)
    settled(one)
    assert long.file is FileState.WHOLE
    assert one.store._filer.shelf.size == size(13)


def test_what_the_next_turn_goes_on_from_comes_first():
    """The newest end, then openings, older ends, and other boundaries, newest first."""
    one = bench(MemoryShelf(at_once=False))
    kinds = (Kind.SYSTEM, Kind.COMMITTED, Kind.PROMPT, Kind.CUT, Kind.COMMITTED)
    entries = [one.keep(one.capsule(n), kind=kind) for n, kind in enumerate(kinds)]
    settled(one)
    written = [one.store.get(key) for key in one.store._filer.shelf.files]
    assert [entries.index(entry) for entry in written] == [4, 0, 1, 3, 2]


def test_what_has_no_place_there_is_not_written():
    """An older file would only take the place of a newer one's."""
    one = bench(MemoryShelf(budget_bytes=2 * size(9)))
    entries = [one.keep(one.capsule(first)) for first in range(4)]
    settled(one)
    files = [entry.file for entry in entries]
    assert files == [FileState.NONE, FileState.NONE, FileState.WHOLE, FileState.WHOLE]
    assert one.store.report()["unfiled"] == 0


def test_a_file_that_cannot_be_written_costs_nothing_else():
    """The capsule stays where it is, and is tried again when it is used again."""
    one = bench()
    one.store._filer.shelf.faults["write"] = 1
    entry = one.keep(one.capsule(1))
    settled(one)
    assert (entry.tier, entry.file) == (Tier.DEVICE, FileState.GIVEN_UP)
    assert one.store.report()["file_faults"] == 1
    one.store.use(entry)
    settled(one)
    assert entry.file is FileState.WHOLE


def test_what_went_to_make_room_is_known_to_be_gone():
    """In memory it stays; what lay in its file only is not found any more."""
    one = bench(MemoryShelf(budget_bytes=2 * size(9)), device=2 * size(9), host=0)
    for first in range(1, 5):
        one.keep(one.capsule(first))
        settled(one)
    held = one.store.entries()
    assert [entry.file for entry in held] == [FileState.WHOLE] * 2
    assert [entry.capsule.tokens[0] for entry in held] == [3, 4]


def test_a_start_knows_all_that_is_whole():
    """By its ids, with all that was known of it, and with rows that are shared."""
    one = bench()
    short = one.keep(one.capsule(1), kind=Kind.SYSTEM, turn=3, session="sess_1")
    one.keep(one.capsule(1, more=4))
    settled(one)
    new = again(one)
    long_, short_ = new.store.path("a", packed_of(one.store.entries()[1].capsule))
    assert (short_.kind, short_.turn, short_.session) == (Kind.SYSTEM, 3, "sess_1")
    assert (short_.tier, short_.key) == (Tier.DISK, short.key)
    assert short_.capsule.rows[0] is long_.capsule.rows[0]
    assert long_.parent is short_
    assert new.store.footprint() == new.store.host_footprint() == 0
    assert new.store.report()["found"] == 2


def test_a_start_deletes_what_has_expired():
    """Nobody knows its session any more."""
    one = bench()
    one.keep(one.capsule(1))
    settled(one)
    new = bench(one.store._filer.shelf)
    new.store.adopt(one.store._filer.shelf.filed(), "fake", expired_before=1.0)
    assert new.store.entries() == ()
    assert not new.store._filer.shelf.files


def test_a_key_that_comes_again_is_another_parcel():
    """What comes of the first one says nothing about the second."""
    one = bench(MemoryShelf(at_once=False))
    first = one.keep(one.capsule(1))
    one.store.write_behind()
    one.engine.finish_copies()
    one.store.write_behind()
    one.store.drop(first)
    second = one.keep(one.capsule(1))
    one.store.write_behind()
    assert (first.key, second.file) == (second.key, FileState.BEGUN)
    settled(one)
    assert second.file is FileState.WHOLE
    assert list(one.store._filer.shelf.files) == [second.key]


@pytest.mark.parametrize("shelf", [None, MemoryShelf()])
def test_without_a_carrier_there_is_one_tier(shelf):
    """Nothing can be moved."""
    store = CapsuleStore(100, 10**6, None, shelf)
    assert not store.write_behind()
    assert store.report()["host_budget_bytes"] == 0
