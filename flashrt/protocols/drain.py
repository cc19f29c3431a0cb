"""`/admin/drain`: taking a worker out, softly, and back in."""

import msgspec

from flashrt.protocols.fields import read_json


class DrainFields(msgspec.Struct, kw_only=True):
    """Begin a soft drain, or end it. Unknown fields are ignored."""

    undo: bool = False


_DRAIN = msgspec.json.Decoder(DrainFields)


def read_drain(body: bytes) -> DrainFields:
    """What is asked for; raises BadRequest."""
    return read_json(body, _DRAIN)
