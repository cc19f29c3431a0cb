"""What lies in a capsule directory."""

import os
from pathlib import Path

import pytest

from flashrt.disk.folder import Folder
from flashrt.disk.listing import Listing, Listings, read_manifest
from flashrt.errors import DiskFault
from tests.disk.capsules import made, opened, put


@pytest.fixture
def directory(quick_path: Path):
    """With two capsules that share a row block."""
    directory = opened(quick_path)
    put(directory, made("a", blocks=1))
    put(directory, made("b", blocks=2))
    return directory


def look(directory, listings: Listings | None = None) -> Listing:
    """The directory as it is."""
    with Folder.opened(directory.path) as folder:
        return (listings or Listings()).look(folder)


def test_everything_is_listed_by_its_role(directory):
    """And its bytes are those of all files of ours."""
    directory.write_note("replay", b"x")
    (directory.path / "readme").write_bytes(b"not ours")
    (directory.path / f"{'a' * 32}.tmp").write_bytes(b"12345")

    listing = look(directory)

    assert {item.key for item in listing.whole()} == {"a", "b"}
    assert [len(x) for x in (listing.parts, listing.notes, listing.temporaries)] == [4, 1, 1]
    assert [found.name for found in listing.foreign] == ["readme"]
    assert sorted(listing.references().values()) == [1, 1, 1, 2]
    files = sum(file.stat().st_size for file in directory.path.iterdir())
    assert listing.size_bytes == files - len(b"not ours")


def test_a_manifest_that_stayed_is_not_read_again(directory, monkeypatch: pytest.MonkeyPatch):
    """One that was replaced is."""
    listings = Listings()
    before = look(directory, listings)
    opens: list[str] = []
    real = os.open
    monkeypatch.setattr(os, "open", lambda name, *a, **k: opens.append(name) or real(name, *a, **k))

    assert look(directory, listings) == before
    assert len(opens) == 1
    put(directory, made("a", blocks=2))
    opens.clear()
    look(directory, listings)
    assert len(opens) == 2


def test_a_manifest_that_cannot_be_read_just_now_is_not_torn(directory):
    """Nobody knows what it refers to, so nothing of it may go: too many open files, say."""
    name = sorted(directory.path.glob("capsule-*"))[0].name
    real = os.open

    def refusing(path, *args, **more):
        if path == name:
            raise OSError(24, "Too many open files")
        return real(path, *args, **more)

    os.open = refusing
    try:
        (item,) = look(directory).torn()
        gone = opened(directory.path.parent, budget_bytes=1).prune()
    finally:
        os.open = real

    assert item.is_unread
    assert "Too many open files" in item.fault
    assert gone == ()
    assert len(list(directory.filed())) == 2


def test_a_manifest_under_another_name_is_refused(directory):
    """A copy is no second capsule."""
    one, other = sorted(directory.path.glob("capsule-*"))
    other.write_bytes(one.read_bytes())

    (item,) = look(directory).torn()

    assert item.fault.endswith("has another capsule's name")
    with Folder.opened(directory.path) as folder, pytest.raises(DiskFault, match="another"):
        read_manifest(folder, other.name)
