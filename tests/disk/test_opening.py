"""Whether a directory may hold capsules."""

import os
import stat
from pathlib import Path

import pytest

from flashrt.disk.names import LOCK
from flashrt.disk.opening import prepare, require
from flashrt.errors import CannotServe


def mode(path: Path) -> int:
    """Its permissions."""
    return stat.S_IMODE(path.stat().st_mode)


def test_a_directory_is_made_private_under_any_umask(tmp_path: Path):
    """With its parents, which are as others are."""
    before = os.umask(0o077)
    try:
        prepare(tmp_path / "a" / "b")
        os.umask(0o000)
        prepare(tmp_path / "c")
    finally:
        os.umask(before)

    assert mode(tmp_path / "a" / "b") == mode(tmp_path / "c") == 0o700
    require(tmp_path / "c")


def test_an_open_directory_of_ours_is_narrowed_with_a_word(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    """Empty, or one of capsules already."""
    for _ in range(2):
        tmp_path.chmod(0o755)
        caplog.clear()
        prepare(tmp_path)
        assert mode(tmp_path) == 0o700
        assert f"{tmp_path} was open to others (0755); it is private now" in caplog.text
    caplog.clear()
    prepare(tmp_path)
    assert caplog.text == ""


def test_a_directory_that_holds_other_files_is_refused_and_left_alone(tmp_path: Path):
    """Somebody's home is not narrowed, and nothing is put there."""
    tmp_path.chmod(0o755)
    (tmp_path / "thesis.tex").write_bytes(b"")

    with pytest.raises(
        CannotServe, match=r"holds other files \('thesis.tex' is one\).*of their own"
    ):
        prepare(tmp_path)

    assert mode(tmp_path) == 0o755
    assert [file.name for file in tmp_path.iterdir()] == ["thesis.tex"]


def test_the_root_of_a_file_system_may_be_taken(tmp_path: Path):
    """What the system itself put there does not count."""
    (tmp_path / "lost+found").mkdir()

    prepare(tmp_path)


@pytest.mark.parametrize("what", ["file", "link", "below a file", "lock is a link"])
def test_what_is_no_directory_of_ours_is_refused_by_its_name(tmp_path: Path, what: str):
    """A link is refused with the place that it leads to."""
    path = tmp_path / "x"
    match what:
        case "file":
            path.write_bytes(b"")
        case "link":
            (tmp_path / "real").mkdir()
            path.symlink_to(tmp_path / "real")
        case "below a file":
            path.write_bytes(b"")
            path = path / "y"
        case "lock is a link":
            path.mkdir()
            (path / LOCK).symlink_to(tmp_path / "elsewhere")

    with pytest.raises(CannotServe, match=str(path)):
        prepare(path)
    assert what != "link" or list((tmp_path / "real").iterdir()) == []


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_directory_that_cannot_be_written_is_refused(tmp_path: Path):
    """At the start, and not when the first capsule is lost."""
    tmp_path.chmod(0o500)

    with pytest.raises(CannotServe, match="cannot be written by this user"):
        prepare(tmp_path)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make it so")
def test_a_directory_of_another_user_is_refused(tmp_path: Path):
    """Who owns it may read it."""
    os.chown(tmp_path, 12345, 12345)

    with pytest.raises(CannotServe, match="belongs to another user"):
        prepare(tmp_path)


def test_looking_after_a_directory_makes_none(tmp_path: Path):
    """A name that was typed wrong is told."""
    for name in ("missing", "."):
        with pytest.raises(CannotServe, match="is no directory of capsules"):
            require(tmp_path / name)
    assert list(tmp_path.iterdir()) == []
