"""Changes to a capsule directory that stop in front of any one call to the system.

    python -m tests.disk.crashes DIR STEP   a child is killed in front of every STEPth call

A child that is killed cleans nothing up; half of a write may have come through.
"""

import fcntl
import itertools
import os
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import attrs

from flashrt.disk import CapsuleDirectory, HostBuffer
from flashrt.disk.names import Role, role
from tests.disk.capsules import Made, holds, made, opened, put

CALLS = (
    *((os, name) for name in ("open", "write", "readv", "fsync", "rename", "utime", "fchmod")),
    *((os, name) for name in ("stat", "listdir", "unlink", "fstat")),
    (fcntl, "flock"),
)

KILLED = 9
LATER_S = 1e10

OLD, LAST = made("old", blocks=2), made("last", seed=7)
NEW = made("new", blocks=3)
OTHER = attrs.evolve(OLD, state={"anchors": HostBuffer("float32", (2,), b"anchored")})


@contextmanager
def stopping(at: int, stop: Callable[[str, tuple], None]) -> Iterator[itertools.count]:
    """`stop` is called in front of the call number `at`, with its name and arguments."""
    count = itertools.count()

    def watched(name: str, call: Callable) -> Callable:
        def calling(*args, **names):
            if next(count) == at:
                stop(name, args)
            return call(*args, **names)

        return calling

    real = [(module, name, getattr(module, name)) for module, name in CALLS]
    for module, name, call in real:
        setattr(module, name, watched(name, call))
    try:
        yield count
    finally:
        for module, name, call in real:
            setattr(module, name, call)


def begin(folder: Path) -> CapsuleDirectory:
    """A directory with two capsules and a note, that has no room for a third lineage."""
    directory = opened(folder)
    put(directory, LAST)
    os.utime(next(directory.path.glob("capsule-*")), (1, 1))
    put(directory, OLD)
    directory.write_note("replay", b"before")
    directory.budget_bytes = sum(f.stat().st_size for f in directory.path.iterdir()) + 1500
    return directory


def change(directory: CapsuleDirectory) -> None:
    """Everything that changes a directory: a capsule that takes the room of another, one in the
    place of its like, a note, a reading, and one that is deleted."""
    put(directory, NEW)
    put(directory, OTHER)
    directory.write_note("replay", b"after")
    directory.read("new")
    directory.delete("old")


def check(folder: Path) -> None:
    """Only whole capsules and notes are there, and work goes on as if nothing had been."""
    directory = opened(folder)
    states: dict[str, tuple[Made, ...]] = {"old": (OLD, OTHER), "new": (NEW,), "last": (LAST,)}
    filed = list(directory.filed())
    assert directory.counts["torn"] == directory.counts["foreign"] == 0, directory.counts
    for one in filed:
        assert any(holds(directory, capsule) for capsule in states[one.key]), one
    assert directory.read_note("replay") in (b"before", b"after")
    put(directory, NEW)
    assert holds(directory, NEW)
    CapsuleDirectory(directory.path, "", None, clock=lambda: LATER_S).prune()
    roles = [role(file.name) for file in directory.path.iterdir()]
    assert roles.count(Role.TEMPORARY) == 0, roles
    listed = {row.name for one in directory.filed() for row in one.rows}
    assert roles.count(Role.PART) == len(listed) + len(list(directory.filed())), roles


def _die(name: str, args: tuple) -> None:
    if name == "write":
        descriptor, data = args
        os.pwrite(descriptor, bytes(data)[: len(data) // 2], 0)
    os._exit(KILLED)


def _dies_in_front_of(at: int, folder: Path, budget_bytes: int | None) -> bool:
    """Whether a child that does everything was killed there; False: it came to its end before."""
    pid = os.fork()
    if not pid:
        status = 1
        try:
            directory = opened(folder, budget_bytes=budget_bytes)
            with stopping(at, _die):
                change(directory)
            status = 0
        finally:
            os._exit(status)
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    assert status in (0, KILLED), status
    return status == KILLED


def main(place: Path, step: int) -> int:
    """How many calls there were; every `step`th of them was the last of some child."""
    template = place / "template"
    budget_bytes = begin(template).budget_bytes
    for at in itertools.count(0, step):
        folder = place / "now"
        shutil.copytree(template, folder)
        killed = _dies_in_front_of(at, folder, budget_bytes)
        check(folder)
        shutil.rmtree(folder)
        if not killed:
            return at
    raise AssertionError("a count ends")


if __name__ == "__main__":
    print(main(Path(sys.argv[1]), int(sys.argv[2])))
