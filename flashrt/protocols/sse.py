"""Framing of server-sent events."""

import msgspec

DONE = b"data: [DONE]\n\n"
"""The terminator of a stream that ended well. A broken stream never gets it."""

_ENCODER = msgspec.json.Encoder()


def event(value: object, name: str | None = None) -> bytes:
    """One `data:` event, and its name if it has one; JSON text has no line breaks of its own."""
    named = b"" if name is None else b"event: %s\n" % name.encode()
    return named + b"data: " + _ENCODER.encode(value) + b"\n\n"
