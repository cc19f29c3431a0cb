"""What the system lets this process use of its memory: a container's limit, or a service's."""

from collections.abc import Iterator, Mapping
from pathlib import Path

import attrs

OWN_GROUPS, MOUNT = Path("/proc/self/cgroup"), Path("/sys/fs/cgroup")


@attrs.frozen
class Names:
    """The files of one version of control groups."""

    limit: str
    used: str
    cache: str
    """The line of `memory.stat` for files that the system lets go of when memory is short."""


UNIFIED = Names("memory.max", "memory.current", "inactive_file")
LEGACY = Names("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")


def left_bytes(own_groups: Path = OWN_GROUPS, mount: Path = MOUNT) -> int | None:
    """What the group of this process, and those above it, leave; None: nothing limits it."""
    try:
        lines = own_groups.read_text(encoding="utf-8").splitlines()
    except OSError:
        return None
    left = [
        found
        for line in lines
        for folder, names in _folders(line, mount)
        if (found := _left(folder, names)) is not None
    ]
    return min(left, default=None)


def _folders(line: str, mount: Path) -> Iterator[tuple[Path, Names]]:
    """Of `number:controllers:/path`, from the process's own group up to what is mounted, which
    inside a container is its own."""
    _, controllers, path = line.split(":", 2)
    if controllers and "memory" not in controllers.split(","):
        return
    names, root = (LEGACY, mount / "memory") if controllers else (UNIFIED, mount)
    folder = root / path.lstrip("/")
    yield from ((above, names) for above in (folder, *folder.parents) if above.is_relative_to(root))


def _left(folder: Path, names: Names) -> int | None:
    try:
        limit, used = ((folder / name).read_text("ascii") for name in (names.limit, names.used))
        if limit.strip() == "max":
            return None
        stat = _table((folder / "memory.stat").read_text("ascii"))
        return max(0, int(limit) - int(used) + stat.get(names.cache, 0))
    except (OSError, ValueError):
        return None


def _table(text: str) -> Mapping[str, int]:
    words = (line.split() for line in text.splitlines())
    return {name: int(value) for name, value in words}
