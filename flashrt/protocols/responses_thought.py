"""An answer's thinking as a Responses client carries it, and as it is read back."""

import base64
import binascii
from collections.abc import Mapping
from typing import Any

SEAL = "flashrt1:"
"""In front of what is ours; other servers' seals cannot be read, and begin otherwise."""


def sealed(thought: str) -> str:
    """`encrypted_content`: opaque to clients, and no secret. A client may keep it for years."""
    return SEAL + base64.urlsafe_b64encode(thought.encode(errors="surrogatepass")).decode()


def unsealed(seal: object) -> str | None:
    """The thought behind a seal of ours; None for everything else."""
    if not isinstance(seal, str) or not seal.startswith(SEAL):
        return None
    try:
        raw = base64.b64decode(seal[len(SEAL) :].encode(), altchars=b"-_", validate=True)
        return raw.decode(errors="surrogatepass")
    except (binascii.Error, ValueError):
        return None


def thought_of(item: Mapping[str, Any]) -> str:
    """What a reasoning item says: its seal if that is ours, else its content, else its summary."""
    thought = unsealed(item.get("encrypted_content"))
    if thought is not None:
        return thought
    return _texts(item.get("content")) or _texts(item.get("summary"))


def _texts(parts: object) -> str:
    """The parts' texts in a row; what has none is passed over."""
    found = parts if isinstance(parts, list) else [parts]
    texts = [part.get("text") if isinstance(part, Mapping) else part for part in found]
    return "".join(text for text in texts if isinstance(text, str))
