"""What files in a capsule directory are called. No name says whose capsule it is."""

import hashlib
import os
import re
from collections.abc import Iterable
from enum import Enum

LOCK = "flashrt-capsules.lock"
"""Marks a directory as one of capsules; whoever changes what lies there locks it."""

PART_DIGEST_BYTES = 32
NAME_DIGEST_BYTES = 16

STRANGERS = frozenset({"lost+found"})
"""What a file system puts into its own root."""


class Role(Enum):
    """What a file is, by its name."""

    MANIFEST = "manifest"
    PART = "part"
    NOTE = "note"
    TEMPORARY = "temporary"
    LOCK = "lock"
    FOREIGN = "foreign"


PATTERNS = {
    Role.MANIFEST: re.compile(r"capsule-[0-9a-f]{32}\.json"),
    Role.PART: re.compile(r"part-[0-9a-f]{64}\.safetensors"),
    Role.NOTE: re.compile(r"note-[0-9a-f]{32}"),
    Role.TEMPORARY: re.compile(r"[0-9a-f]{32}\.tmp"),
    Role.LOCK: re.compile(re.escape(LOCK)),
}


def role(name: str) -> Role:
    """What a file of that name is."""
    for what, pattern in PATTERNS.items():
        if pattern.fullmatch(name):
            return what
    return Role.FOREIGN


def manifest_file(identity: str, key: str) -> str:
    """Of the capsule of that key and identity."""
    return f"capsule-{_digest(identity, key)}.json"


def note_file(identity: str, name: str) -> str:
    """Of the note of that name and identity."""
    return f"note-{_digest(identity, name)}"


def part_file(chunks: Iterable[bytes | bytearray | memoryview]) -> str:
    """Of the part that holds exactly these bytes."""
    digest = hashlib.blake2b(digest_size=PART_DIGEST_BYTES)
    for chunk in chunks:
        digest.update(chunk)
    return part_name(digest.hexdigest())


def part_name(digest: str) -> str:
    """Of the part whose bytes have that digest."""
    return f"part-{digest}.safetensors"


def temporary() -> str:
    """A name that nobody has."""
    return f"{os.urandom(16).hex()}.tmp"


def _digest(*parts: str) -> str:
    """Of parts in their order; no two different lists of parts give the same text."""
    text = "".join(f"{len(part)}:{part}" for part in parts)
    data = text.encode(errors="surrogatepass")
    return hashlib.blake2b(data, digest_size=NAME_DIGEST_BYTES).hexdigest()
