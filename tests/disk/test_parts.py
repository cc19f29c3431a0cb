"""One file of buffers, under the digest of its bytes."""

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings

from flashrt.disk import Buffers, HostBuffer, parts
from flashrt.disk.folder import PIECE_BYTES, Folder
from flashrt.disk.tensors import BadBuffers
from tests.disk.capsules import NAMED_BUFFERS, opened, same


def stored(folder: Folder, buffers: Buffers) -> parts.Draft:
    """A part that is there."""
    draft = parts.Draft.of(buffers)
    (folder.path / draft.name).write_bytes(b"".join(draft.chunks))
    return draft


@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(NAMED_BUFFERS)
def test_a_part_is_read_as_it_was_written(quick_path: Path, buffers: Buffers):
    """And verifying it says the same as reading it."""
    with Folder.opened(opened(quick_path).path) as folder:
        draft = stored(folder, buffers)

        assert same(parts.read(folder, draft.name, draft.size_bytes), buffers)
        parts.verify(folder, draft.name, draft.size_bytes)


def test_a_part_of_many_pieces_is_read_to_its_last_byte(quick_path: Path):
    """Reading and verifying both go piece by piece; a flipped last bit is seen by both."""
    size = 2 * PIECE_BYTES + 5
    buffers = {"kv": HostBuffer("uint8", (size,), bytes(range(256)) * (size // 256 + 1))}
    buffers["kv"] = HostBuffer("uint8", (size,), buffers["kv"].data[:size])
    with Folder.opened(opened(quick_path).path) as folder:
        draft = stored(folder, buffers)
        assert same(parts.read(folder, draft.name, draft.size_bytes), buffers)

        with (folder.path / draft.name).open("r+b") as file:
            file.seek(-1, 2)
            file.write(b"\xff")
        for look in (parts.read, parts.verify):
            with pytest.raises(BadBuffers, match="does not have its checksum"):
                look(folder, draft.name, draft.size_bytes)


@pytest.mark.parametrize("look", [parts.read, parts.verify])
def test_a_part_of_another_size_is_refused_unread(quick_path: Path, look):
    """Both sizes are told."""
    with Folder.opened(opened(quick_path).path) as folder:
        draft = stored(folder, {"n": HostBuffer("uint8", (2,), b"ab")})

        with pytest.raises(BadBuffers, match=r"it has \d+ bytes, not 7"):
            look(folder, draft.name, 7)


def test_equal_buffers_have_one_name_in_any_order():
    """And another name is another part."""
    a, b = HostBuffer("uint8", (2,), b"ab"), HostBuffer("int16", (1,), memoryview(b"cd"))

    assert parts.Draft.of({"a": a, "b": b}).name == parts.Draft.of({"b": b, "a": a}).name
    assert parts.Draft.of({"a": a}).name != parts.Draft.of({"b": a}).name
