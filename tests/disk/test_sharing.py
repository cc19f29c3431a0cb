"""Two processes on one directory do each other no harm, and share what is whole."""

import subprocess
import sys
from pathlib import Path

import pytest

from flashrt.disk import CapsuleDirectory
from flashrt.disk.names import Role, role
from tests.disk.capsules import holds, made, opened, put
from tests.disk.neighbour import LENGTHS, LINEAGES, capsule
from tests.source import ROOT

BUDGET_BYTES = 60_000


def started(folder: Path, seed: int, count: int, identity: str) -> subprocess.Popen[str]:
    """One process at work there."""
    command = [sys.executable, "-m", "tests.disk.neighbour", folder, seed, count, identity]
    return subprocess.Popen(
        [str(word) for word in command],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


# The long ones take half a minute each.
@pytest.mark.parametrize("count", [100, pytest.param(5000, marks=pytest.mark.slow)])
@pytest.mark.parametrize("identities", [("a", "a"), ("a", "b")], ids="-".join)
def test_two_processes_at_once_leave_only_whole_capsules(
    quick_path: Path, identities: tuple[str, str], count: int
):
    """They write, read, delete and prune the same keys; nobody reads anything but what was written,
    writing works nearly always, and the budget holds at the end."""
    folder = quick_path / "capsules"
    both = [started(folder, seed, count, name) for seed, name in enumerate(identities)]
    said = [one.communicate(timeout=120) for one in both]
    assert [one.returncode for one in both] == [0, 0], said
    done = [dict(word.split("=") for word in out.split()) for out, _ in said]

    for one in done:
        assert int(one["write"]) > count // 4
        assert int(one.get("write_refused", 0)) <= count // 50
    for identity in set(identities):
        directory = CapsuleDirectory(folder, identity, BUDGET_BYTES)
        filed = {one.key for one in directory.filed()}
        assert directory.counts["torn"] == 0
        everything = [capsule(i, n) for i in range(LINEAGES) for n in range(1, LENGTHS + 1)]
        assert all(holds(directory, one) for one in everything if one.filed.key in filed)
        directory.prune()
    files = list(folder.iterdir())
    assert sum(file.stat().st_size for file in files) <= BUDGET_BYTES
    assert not [file for file in files if role(file.name) is Role.TEMPORARY]


def test_what_one_server_has_written_another_reads(tmp_path: Path):
    """Of the same identity; it need not start anew for that."""
    one, other = opened(tmp_path), opened(tmp_path)
    put(one, made())

    assert holds(other, made())
    assert [filed.key for filed in other.filed()] == ["k"]
    other.delete("k")
    assert list(one.filed()) == []
