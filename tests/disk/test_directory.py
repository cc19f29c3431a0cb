"""A directory of capsules, on a real file system."""

import itertools
import os
import stat
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings

from flashrt.disk import CapsuleDirectory, DiskFault
from flashrt.disk.names import LOCK
from tests.disk.capsules import (
    BUDGET_BYTES,
    Made,
    capsules,
    holds,
    made,
    opened,
    put,
)


def files(directory: CapsuleDirectory, start: str = "") -> list[Path]:
    """What lies there, but for the lock."""
    return sorted(
        f for f in directory.path.iterdir() if f.name.startswith(start) and f.name != LOCK
    )


def ticking(folder: Path, budget_bytes: int | None) -> CapsuleDirectory:
    """A directory whose clock goes on by a second with every look."""
    seconds = itertools.count(100)
    return CapsuleDirectory(folder, "x", budget_bytes, clock=lambda: float(next(seconds)))


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(capsules())
def test_what_is_read_is_what_was_written(quick_path: Path, capsule: Made):
    """Any capsule: facts, ids, and every buffer to the last byte."""
    directory = opened(quick_path)
    filed = put(directory, capsule)

    assert holds(directory, capsule)
    assert list(directory.filed()) == [filed]
    assert list(opened(quick_path).filed()) == [filed]
    directory.delete(capsule.filed.key)
    assert files(directory) == []


def test_rows_of_one_lineage_are_stored_once(tmp_path: Path):
    """A further capsule costs its state and its new rows, also where it only names the others."""
    directory = opened(tmp_path)
    first, second = made("a", blocks=2), made("b", blocks=3)
    filed = put(directory, first)
    put(directory, second)
    assert len(files(directory, "part-")) == 2 + 3

    names = [(row.packed, row.name) for row in filed.rows]
    third = made("c", blocks=2)
    directory.write(third.filed, third.state, names)

    assert len(files(directory, "part-")) == 3 + 3
    assert holds(directory, first)
    assert holds(directory, second)
    assert holds(directory, third)


def test_rows_that_are_known_are_not_read(tmp_path: Path):
    """Whoever holds a block already gets its ids alone; even a damaged file does not matter."""
    directory = opened(tmp_path)
    filed = put(directory, made())
    (directory.path / filed.rows[0].name).write_bytes(b"")

    _, _, rows = directory.read("k", known={filed.rows[0].name})

    assert [buffers is None for _, buffers in rows] == [True, False]
    assert rows[0][0] == filed.rows[0].packed


def test_everything_is_private_and_no_name_tells_a_namespace(tmp_path: Path):
    """0600 in 0700 under any umask; the namespace stands inside the manifest alone."""
    before = os.umask(0o000)
    try:
        directory = opened(tmp_path)
        put(directory, made())
        directory.write_note("replay", b"ids")
    finally:
        os.umask(before)

    modes = {stat.S_IMODE(file.stat().st_mode) for file in directory.path.iterdir()}
    assert modes == {0o600}
    assert stat.S_IMODE(directory.path.stat().st_mode) == 0o700
    assert not any("bearer" in file.name or "secret" in file.name for file in files(directory))


def test_two_identities_in_one_directory_do_not_see_each_other(tmp_path: Path):
    """Also where their keys are the same."""
    ours, theirs = opened(tmp_path), opened(tmp_path, identity="other weights")
    put(ours, made(seed=1))
    put(theirs, made(seed=2))

    assert holds(ours, made(seed=1))
    assert holds(theirs, made(seed=2))
    assert len(list(ours.filed())) == 1
    assert ours.report()["other_identity"] == 1
    ours.delete("k")
    assert holds(theirs, made(seed=2))


def test_a_capsule_that_is_deleted_takes_what_it_alone_refers_to(tmp_path: Path):
    """Rows that another one shares stay, and nothing else does."""
    directory = opened(tmp_path)
    put(directory, made("a", blocks=1))
    put(directory, made("b", blocks=2))

    gone = directory.delete("b")

    assert gone[0].key == "b"
    assert len(gone) == 3
    assert holds(directory, made("a", blocks=1))
    assert len(files(directory)) == 3
    assert directory.delete("b") == ()
    directory.delete("a")
    assert files(directory) == []


def test_what_was_used_least_goes_for_a_newcomer(tmp_path: Path):
    """The budget holds after every write, and reading counts as using."""
    budget = 3 * put(opened(tmp_path), made("sized")).size_bytes + 3000
    directory = ticking(tmp_path / "small", budget)
    for seed, key in enumerate("abc"):
        put(directory, made(key, seed=seed))
    directory.read("a")

    capsule = made("d", seed=9)
    written = directory.write(capsule.filed, capsule.state, capsule.rows)

    assert [gone.key for gone in written.gone if gone.key] == ["b"]
    assert {filed.key for filed in directory.filed()} == {"a", "c", "d"}
    assert sum(file.stat().st_size for file in files(directory)) <= budget


def test_rows_stay_while_a_manifest_names_them(tmp_path: Path):
    """The oldest of a lineage goes and its younger relative is still whole."""
    directory = ticking(tmp_path / "small", None)
    put(directory, made("a", blocks=3))
    put(directory, made("b", blocks=3))
    directory.budget_bytes = sum(file.stat().st_size for file in files(directory)) + 2000

    capsule = made("c", seed=5, blocks=1)
    written = directory.write(capsule.filed, capsule.state, capsule.rows)

    assert [gone.key for gone in written.gone] == ["a", None]
    assert holds(directory, made("b", blocks=3))
    assert holds(directory, capsule)


def test_what_cannot_fit_is_refused_and_nothing_goes_for_it(tmp_path: Path):
    """The refusal names the room, the budget and the flag."""
    directory = opened(tmp_path, budget_bytes=20_000)
    put(directory, made("a", blocks=1))

    with pytest.raises(DiskFault, match=r"no room for .* budget of 20,000 .*disk-capsule-budget"):
        put(directory, made("b", blocks=40))

    assert holds(directory, made("a", blocks=1))
    assert len(files(directory)) == 3


def test_a_damaged_part_is_let_go_of_and_can_be_written_anew(tmp_path: Path):
    """Else the next capsule of the lineage would believe that its rows are there."""
    directory = opened(tmp_path)
    filed = put(directory, made("a"))
    part = directory.path / filed.rows[0].name
    part.write_bytes(part.read_bytes()[:-1] + b"\0")

    with pytest.raises(DiskFault, match=f"{part.name} is damaged: it does not have its checksum"):
        directory.read("a")
    put(directory, made("b"))

    assert holds(directory, made("b"))
    assert directory.report()["damaged"] == 1


def test_a_row_that_is_named_and_not_there_is_a_fault(tmp_path: Path):
    """Whoever named it writes it with its bytes then."""
    directory = opened(tmp_path)
    filed = put(directory, made("a"))
    directory.delete("a")
    again = made("b")

    with pytest.raises(DiskFault, match="is not there any more"):
        directory.write(again.filed, again.state, [(r.packed, r.name) for r in filed.rows])

    assert list(directory.filed()) == []


def test_a_torn_capsule_is_reported_and_pruned(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    """It is not among the filed ones, the log says why, and its own parts go when they are old."""
    directory = opened(tmp_path)
    filed = put(directory, made("a"))
    (directory.path / filed.rows[1].name).unlink()
    (directory.path / "holiday.jpg").write_bytes(b"")

    assert list(directory.filed()) == []
    assert "is missing" in caplog.text
    assert "holiday.jpg" in caplog.text
    assert (directory.counts["torn"], directory.counts["foreign"]) == (1, 1)

    assert [gone.key for gone in directory.prune()] == ["a"]
    later = CapsuleDirectory(directory.path, "x", BUDGET_BYTES, clock=lambda: 1e4)
    assert len(later.prune()) == 2
    assert [file.name for file in files(directory)] == ["holiday.jpg"]


def test_a_directory_that_is_gone_is_a_fault_of_every_call(tmp_path: Path):
    """None of them makes it anew, and a report needs no directory."""
    directory = opened(tmp_path)
    (directory.path / LOCK).unlink()
    directory.path.rmdir()
    capsule = made()

    for call in (
        lambda: put(directory, capsule),
        lambda: directory.read("k"),
        lambda: directory.delete("k"),
        lambda: directory.filed(),
        lambda: directory.prune(),
        lambda: directory.write_note("n", b""),
        lambda: directory.read_note("n"),
    ):
        with pytest.raises(DiskFault, match="No such file or directory"):
            call()
    assert not directory.path.exists()
    assert directory.report()["write_faults"] == 2


def test_a_directory_that_was_opened_to_others_is_not_used(tmp_path: Path):
    """What lies in it may be anybody's by then."""
    directory = opened(tmp_path)
    directory.path.chmod(0o755)

    with pytest.raises(DiskFault, match="not private"):
        directory.read("k")


@pytest.mark.parametrize("data", [b"", b"x", os.urandom(100_000)])
def test_a_note_is_kept_per_identity(tmp_path: Path, data: bytes):
    """The newest bytes, verified; nothing for another identity or name."""
    directory = opened(tmp_path)
    directory.write_note("replay", b"before")
    directory.write_note("replay", data)

    assert directory.read_note("replay") == data
    assert directory.read_note("other") is None
    assert opened(tmp_path, identity="other").read_note("replay") is None


def test_a_note_that_is_damaged_or_misnamed_is_a_fault(tmp_path: Path):
    """The file and the reason are named."""
    directory = opened(tmp_path)
    directory.write_note("replay", b"ids")
    (file,) = files(directory, "note-")
    file.write_bytes(file.read_bytes()[:-1])

    with pytest.raises(DiskFault, match=f"{file.name} does not have its checksum"):
        directory.read_note("replay")
    with pytest.raises(DiskFault, match="is no name of a note"):
        directory.write_note("../replay", b"")
