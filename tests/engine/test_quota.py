"""What control groups leave of the memory."""

import pytest

from flashrt.engine.quota import left_bytes

UNIFIED = ("memory.max", "memory.current", "inactive_file")
LEGACY = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")


def group(folder, names, limit, used, cache=0):
    folder.mkdir(parents=True, exist_ok=True)
    for name, value in zip((*names[:2], "memory.stat"), (limit, used, ""), strict=True):
        (folder / name).write_text(f"{value}\n")
    (folder / "memory.stat").write_text(f"anon 5\n{names[2]} {cache}\nfile 9\n")


def left(tmp_path, *lines):
    (tmp_path / "own").write_text("".join(f"{line}\n" for line in lines))
    return left_bytes(tmp_path / "own", tmp_path / "mount")


@pytest.mark.parametrize(
    ("names", "root", "line"),
    [(UNIFIED, "mount", "0::{}"), (LEGACY, "mount/memory", "4:cpu,memory:{}")],
    ids=["unified", "legacy"],
)
def test_the_tightest_of_a_group_and_those_above_it_counts(tmp_path, names, root, line):
    """Files that the system would let go of are free; a group that is not mounted says nothing."""
    group(tmp_path / root / "a" / "b", names, 1000, 400, 100)
    assert left(tmp_path, line.format("/a/b"), "3:cpuset:/") == 700
    group(tmp_path / root / "a", names, 900, 500)
    assert left(tmp_path, line.format("/a/b")) == 400
    assert left(tmp_path, line.format("/elsewhere")) is None
    group(tmp_path / root, names, 300, 350)
    assert left(tmp_path, line.format("/elsewhere")) == 0


def test_without_a_limit_there_is_none(tmp_path):
    """As outside of every container."""
    group(tmp_path / "mount" / "a", UNIFIED, "max", 400)
    assert left(tmp_path, "0::/a") is None
    assert left_bytes(tmp_path / "nowhere", tmp_path) is None
