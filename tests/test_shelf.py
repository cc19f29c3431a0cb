"""The writer thread over a real directory."""

import threading

import pytest

from flashrt.disk import CapsuleDirectory, Filed
from flashrt.engine.fake import FakeEngine
from flashrt.errors import DiskFault
from flashrt.policy.shelf import Parcel
from flashrt.shelf import DiskShelf

WITHIN_S = 20


class Held(CapsuleDirectory):
    """A directory that writes when a test lets it, and breaks when it says so."""

    def __init__(self, path, budget_bytes=None):
        super().__init__(path, "fake", budget_bytes)
        self.free = threading.Event()
        self.breaks = 0

    def write(self, filed, state, rows):
        assert self.free.wait(WITHIN_S)
        if self.breaks:
            self.breaks -= 1
            raise DiskFault("no space left on device")
        return super().write(filed, state, rows)


@pytest.fixture
def directory(tmp_path):
    return Held(tmp_path / "capsules")


@pytest.fixture
def shelf(directory):
    shelf = DiskShelf(directory, under_way_bytes_max=1000, wait_s=0.0)
    yield shelf
    directory.free.set()
    shelf.close()


def parcel(number, ids=(1, 2, 3), size_bytes=100, rows=None):
    engine = FakeEngine()
    list(engine.prefill(ids))
    capsule = engine.snapshot()
    (block,) = capsule.rows
    filed = Filed(f"{number:032x}", "a", "s", "cut", 1, len(ids), None, ((len(ids), False, ()),), 0)
    rows = rows or [(block.packed, engine.to_bytes(block.buffers))]
    return Parcel(number, filed, engine.to_bytes(capsule.state), rows, size_bytes)


def test_what_is_handed_over_is_written_in_its_order(shelf, directory):
    """And told with the names of its rows, by which a later one refers to them."""
    for number in (1, 2):
        shelf.put(parcel(number))
    assert shelf.busy
    assert list(shelf.delivered()) == []
    directory.free.set()
    assert shelf.flush(WITHIN_S)
    one, two = shelf.delivered()
    assert (one.number, two.number, one.fault) == (1, 2, "")
    assert one.rows == two.rows
    assert not shelf.busy
    shelf.put(parcel(3, rows=[(parcel(3).rows[0][0], one.rows[0])]))
    assert shelf.flush(WITHIN_S)
    (three,) = shelf.delivered()
    assert three.rows == one.rows
    assert next(filed.key for filed in shelf.filed()) == parcel(3).filed.key


def test_it_reads_what_it_wrote(shelf, directory):
    """All buffers; of rows that are known only their place."""
    directory.free.set()
    shelf.put(parcel(1))
    assert shelf.flush(WITHIN_S)
    (done,) = shelf.delivered()
    whole = shelf.read(parcel(1).filed.key, ())
    assert bytes(whole.rows[0]["processed"].data) == bytes(parcel(1).rows[0][1]["processed"].data)
    assert bytes(whole.state["position"].data) == bytes(parcel(1).state["position"].data)
    assert shelf.read(parcel(1).filed.key, done.rows).rows == (None,)
    with pytest.raises(DiskFault):
        shelf.read(parcel(2).filed.key, ())


def test_what_is_under_way_is_bounded(shelf):
    """One more is refused, however large a single one may be; nobody waits for the writer."""
    assert shelf.takes(10_000)
    shelf.put(parcel(1, size_bytes=600))
    assert shelf.takes(400)
    assert not shelf.takes(401)
    shelf.wait(1)
    assert list(shelf.delivered()) == []


def test_a_fault_is_told_and_the_thread_goes_on(shelf, directory):
    """The next one is written."""
    directory.breaks = 1
    directory.free.set()
    for number in (1, 2):
        shelf.put(parcel(number))
    shelf.delete("no such key")
    assert shelf.flush(WITHIN_S)
    one, two = shelf.delivered()
    assert "no space left" in one.fault
    assert (two.fault, len(two.rows)) == ("", 1)


def test_a_deletion_stays_behind_what_was_handed_over_before(shelf, directory):
    """So a capsule that is dropped while it is being written leaves no file."""
    shelf.put(parcel(1))
    shelf.delete(parcel(1).filed.key)
    directory.free.set()
    assert shelf.flush(WITHIN_S)
    assert list(shelf.filed()) == []


def test_a_note_is_kept_and_read_by_another_process(shelf, directory):
    """In the stead of the one before."""
    directory.free.set()
    assert shelf.read_note("replay") is None
    for data in (b"one", b"two"):
        shelf.keep_note("replay", data)
    assert shelf.flush(WITHIN_S)
    other = DiskShelf(CapsuleDirectory(directory.path, "fake", None))
    assert other.read_note("replay") == b"two"
    other.close()


def test_what_goes_for_a_newer_one_is_told_by_its_key(tmp_path):
    """The store must know that it has no file any more."""
    directory = Held(tmp_path / "capsules")
    directory.free.set()
    shelf = DiskShelf(directory)
    shelf.put(parcel(1, ids=range(60)))
    assert shelf.flush(WITHIN_S)
    # Room for one of the two: a manifest has the time in it, which is not always as long.
    directory.budget_bytes = int(str(directory.report()["bytes"])) + 64
    shelf.put(parcel(2, ids=range(1, 61)))
    assert shelf.flush(WITHIN_S)
    assert [gone for done in shelf.delivered() for gone in done.gone] == [parcel(1).filed.key]
    shelf.close()
