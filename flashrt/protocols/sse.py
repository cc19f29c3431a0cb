"""Framing of server-sent events."""

import msgspec

DONE = b"data: [DONE]\n\n"
"""The terminator of a stream that ended well. A broken stream never gets it."""

_ENCODER = msgspec.json.Encoder()


def event(value: object) -> bytes:
    """One `data:` event; JSON text has no line breaks of its own."""
    return b"data: " + _ENCODER.encode(value) + b"\n\n"
