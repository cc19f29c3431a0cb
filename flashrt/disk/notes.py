"""A note: some bytes under a name, behind a line with their checksum and the file's own name."""

import hashlib
import re

NOTE_BYTES_MAX = 64 << 20
"""The exact-replay memory is bounded by half of it."""

NAME = re.compile(r"[a-z0-9-]{1,40}")
"""What a note may be called."""

MAGIC = "flashrt-note 1"
DIGEST_BYTES = 32
HEAD_BYTES = len(MAGIC) + 1 + 2 * DIGEST_BYTES + 1 + len("note-") + 32 + 1


class BadNote(ValueError):
    """What is wrong with a note, in words behind its name."""


def framed(file: str, data: bytes) -> bytes:
    """The content of the file of that name. Raises BadNote if it is too long."""
    if len(data) > NOTE_BYTES_MAX:
        raise BadNote(f"would have {len(data):,} bytes; at most {NOTE_BYTES_MAX:,}")
    digest = hashlib.blake2b(f"{MAGIC} {file}\n".encode(), digest_size=DIGEST_BYTES)
    digest.update(data)
    return f"{MAGIC} {digest.hexdigest()} {file}\n".encode() + data


def unframed(file: str, content: bytes) -> bytes:
    """The bytes of the note from the content of its file. Raises BadNote."""
    data = content[HEAD_BYTES:]
    if framed(file, data) != content:
        raise BadNote("does not have its checksum, or is no note of that name")
    return data
