"""How a capsule comes into being, and what is there when that stops half-way."""

import errno
import itertools
import os
import shutil
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from flashrt.disk import DiskFault
from flashrt.disk.names import LOCK, Role, role
from tests.disk.capsules import holds, made, opened, put
from tests.disk.crashes import begin, change, check, stopping
from tests.source import ROOT

REASONS = (errno.ENOSPC, errno.EIO, errno.EROFS, errno.EACCES)


# All of them take some ten seconds.
STEPS = [pytest.param(7, id="some"), pytest.param(1, id="all", marks=pytest.mark.slow)]


@pytest.mark.parametrize("step", STEPS)
def test_a_crash_between_any_two_calls_leaves_whole_capsules_or_none(quick_path: Path, step: int):
    """A process that dies in front of any call to the system, half-way through any write."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.disk.crashes", str(quick_path), str(step)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )

    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 100


@pytest.mark.parametrize("step", STEPS)
def test_a_fault_at_any_call_is_a_fault_of_the_disk_and_no_more(quick_path: Path, step: int):
    """No space, a broken or read-only disk: DiskFault or nothing, and whole capsules."""
    budget_bytes = begin(quick_path / "template").budget_bytes
    for at in itertools.count(0, step):
        reason = REASONS[at % len(REASONS)]
        folder = quick_path / "now"
        shutil.copytree(quick_path / "template", folder)
        failed: list[str] = []

        def fail(name: str, _: tuple, reason: int = reason, failed: list = failed) -> None:
            failed.append(name)
            raise OSError(reason, os.strerror(reason))

        directory = opened(folder, budget_bytes=budget_bytes)
        with suppress(DiskFault), stopping(at, fail):
            change(directory)
        roles = [role(file.name) for file in directory.path.iterdir()]
        assert failed == ["unlink"] or Role.TEMPORARY not in roles, failed
        check(folder)
        shutil.rmtree(folder)
        if not failed:
            break
    assert at > 100


def test_nothing_has_its_name_before_it_is_on_the_disk(tmp_path: Path):
    """Files are synced before they are renamed, and the parts before the manifest is."""
    directory = opened(tmp_path)
    seen: list[tuple[str, str]] = []
    names: dict[int, str] = {}

    def note(call: str):
        real = getattr(os, call)

        def noted(*args, **more):
            done = real(*args, **more)
            if call == "open":
                names[done] = str(args[0])
            elif call == "rename":
                seen.append(("rename", str(args[0])))
                seen.append(("named", role(args[1]).value))
            elif names.get(args[0]) != LOCK:
                seen.append((call, names[args[0]]))
            return done

        return real, noted

    real = {call: note(call) for call in ("open", "write", "fsync", "rename")}
    for call, (_, noted) in real.items():
        setattr(os, call, noted)
    try:
        put(directory, made())
    finally:
        for call, (before, _) in real.items():
            setattr(os, call, before)

    folder = ("fsync", str(directory.path))
    for place, (call, name) in enumerate(seen):
        if call == "rename":
            last_write = max(i for i, one in enumerate(seen) if one == ("write", name))
            assert ("fsync", name) in seen[last_write:place]
    named = [place for place, one in enumerate(seen) if one[0] == "named"]
    assert [seen[place][1] for place in named] == ["part", "part", "part", "manifest"]
    assert folder in seen[named[-2] : named[-1]]
    assert folder in seen[named[-1] :]


def test_parts_that_vanish_while_they_are_written_are_written_again(quick_path: Path):
    """Another server may take them for orphans until the manifest names them."""
    directory = opened(quick_path)
    taken = []

    def take(name: str, args: tuple) -> None:
        parts = list(directory.path.glob("part-*"))
        taken.extend(parts)
        for part in parts:
            part.unlink()

    with stopping(-1, take) as count:
        put(directory, made("probe"))
    directory.delete("probe")
    steps = next(count)
    for at in range(steps):
        with stopping(at, take):
            put(directory, made())
        survived = bool(list(directory.path.glob("part-*")))
        if survived:
            assert holds(directory, made())
        directory.delete("k")
    assert len(taken) > 10


@pytest.mark.parametrize("vanishes", [True, False])
def test_parts_that_never_stay_end_in_a_fault(tmp_path: Path, vanishes: bool):
    """And not in an endless struggle."""
    directory = opened(tmp_path)
    real = os.fsync

    def sweeping(descriptor: int) -> None:
        real(descriptor)
        if vanishes:
            for part in directory.path.glob("part-*"):
                part.unlink()

    os.fsync = sweeping
    try:
        if vanishes:
            with pytest.raises(DiskFault, match="is missing"):
                put(directory, made())
        else:
            put(directory, made())
    finally:
        os.fsync = real
    assert len(list(directory.filed())) == (not vanishes)
