"""A note: some bytes behind a line with their checksum."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flashrt.disk.names import note_file
from flashrt.disk.notes import HEAD_BYTES, NOTE_BYTES_MAX, BadNote, framed, unframed

FILE, OTHER = note_file("id", "replay"), note_file("id", "other")


@given(st.binary(max_size=50))
def test_a_note_is_read_as_it_was_written(data: bytes):
    """Under its own name only."""
    content = framed(FILE, data)

    assert len(content) == HEAD_BYTES + len(data)
    assert unframed(FILE, content) == data
    with pytest.raises(BadNote):
        unframed(OTHER, content)


@given(st.data(), st.binary(max_size=50))
def test_every_damage_is_seen(draw: st.DataObject, data: bytes):
    """A flipped bit anywhere, a cut, something behind, and what is no note at all."""
    content = framed(FILE, data)
    place = draw.draw(st.integers(0, len(content) - 1))
    flipped = bytearray(content)
    flipped[place] ^= 1 << draw.draw(st.integers(0, 7))

    for wrong in (bytes(flipped), content[:place], content + b"\0", data):
        with pytest.raises(BadNote, match="does not have its checksum"):
            unframed(FILE, wrong)


def test_a_note_is_bounded():
    """Both ways."""
    with pytest.raises(BadNote, match="at most 67,108,864"):
        framed(FILE, bytes(NOTE_BYTES_MAX + 1))
    with pytest.raises(BadNote, match="at most"):
        unframed(FILE, bytes(HEAD_BYTES + NOTE_BYTES_MAX + 1))
