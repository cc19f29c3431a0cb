"""A private directory and the files in it."""

import fcntl
import os
import stat
from pathlib import Path

import pytest

from flashrt.disk.folder import Folder
from flashrt.disk.names import LOCK
from flashrt.errors import DiskFault


@pytest.fixture
def folder(tmp_path: Path):
    """An empty one."""
    tmp_path.chmod(0o700)
    with Folder.opened(tmp_path) as opened:
        yield opened


def test_a_written_file_is_a_temporary_until_it_is_renamed(folder: Folder):
    """Renamed it stays; else it is gone at the end."""
    with folder.written([b"one"], 5.0) as name:
        folder.rename(name, "kept")
    with folder.written([b"two"], 5.0):
        pass

    (found,) = folder.entries()
    assert (found.name, found.size_bytes, found.used_ns) == ("kept", 3, 5_000_000_000)
    assert folder.content("kept", 100) == b"one"
    assert stat.S_IMODE((folder.path / "kept").stat().st_mode) == 0o600


def test_of_a_file_that_is_too_long_only_so_much_is_read_that_it_shows(folder: Folder):
    """A byte more than the most."""
    (folder.path / "long").write_bytes(bytes(100))

    assert len(folder.content("long", 10)) == 11


@pytest.mark.parametrize("kind", ["link", "dangling", "directory", "pipe"])
def test_what_is_no_file_is_not_read_and_can_be_removed(folder: Folder, kind: str):
    """What a link leads to stays as it is."""
    outside = folder.path.parent / f"outside {kind}"
    outside.write_bytes(b"secret")
    made = folder.path / "x"
    match kind:
        case "link":
            made.symlink_to(outside)
        case "dangling":
            made.symlink_to("nowhere")
        case "directory":
            made.mkdir()
        case "pipe":
            os.mkfifo(made)

    with pytest.raises(DiskFault, match=str(made)):
        folder.content("x", 100)
    assert not folder.entry("x").regular
    assert folder.remove("x")
    assert not folder.remove("x")
    assert outside.read_bytes() == b"secret"


def test_a_directory_that_is_not_empty_is_not_removed(folder: Folder):
    """It is somebody's work."""
    (folder.path / "x" / "y").mkdir(parents=True)

    with pytest.raises(DiskFault, match="could not be removed: Directory not empty"):
        folder.remove("x")


def test_the_lock_is_held_by_one_at_a_time(folder: Folder):
    """Who waits too long is told so."""
    with (
        folder.locked(),
        pytest.raises(DiskFault, match=r"locked by another for 0\.02 s"),
        folder.locked(wait_s=0.02),
    ):
        pass
    with folder.locked(wait_s=0.0):
        assert [found.name for found in folder.entries()] == [LOCK]


def test_a_temporary_is_abandoned_when_nobody_writes_it(folder: Folder):
    """Its lock goes with its writer, however that one ended."""
    with folder.written([b"x"], 0.0) as name:
        assert not folder.is_abandoned(name)
        (folder.path / name).rename(folder.path / "left")
    assert folder.is_abandoned("left")
    assert folder.is_abandoned("not there")


def test_a_link_for_a_lock_is_refused(folder: Folder):
    """Nobody's file is locked in its place."""
    outside = folder.path.parent / "outside"
    outside.write_bytes(b"")
    (folder.path / LOCK).symlink_to(outside)

    with pytest.raises(DiskFault, match=LOCK), folder.locked():
        pass
    with outside.open() as file:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


def test_a_directory_that_is_a_link_or_open_to_others_is_not_opened(tmp_path: Path):
    """Nor one that is not there."""
    (tmp_path / "link").symlink_to(tmp_path)
    (tmp_path / "open").mkdir(mode=0o755)

    for name in ("link", "open", "missing"):
        with pytest.raises(DiskFault, match=str(tmp_path / name)), Folder.opened(tmp_path / name):
            pass
