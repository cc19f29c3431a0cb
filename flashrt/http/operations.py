"""What the OpenAPI document says of one route, and which statuses routes of a kind refuse with."""

from collections.abc import Mapping
from typing import Any

import attrs
import msgspec

from flashrt.protocols.error import ErrorObject

DOOR = (401, 403)
BODY = (400, *DOOR, 404, 408, 413, 415)
ANSWER = (*BODY, 429, 500, 503)
SESSION = (400, *DOOR, 404, 429, 500, 503)
STATE_STATUSES = (404, 503)


class State(msgspec.Struct):
    """What the server is doing; further fields say more."""

    status: str


@attrs.frozen
class Operation:
    """One route: what it takes, what it gives, and the statuses of what it refuses.

    `stream`: the type of one event where the answer is streamed. `example`: a body that is served.
    `media`: what the answer is, if no JSON. `query`: schemas of the target's parameters.
    `error`: the type of what refuses, and of the event that ends a stream which failed.
    `named_events`: each event of the stream has its name, and none stands for the end of all.
    """

    method: str
    path: str
    summary: str
    answer: type
    refuses: tuple[int, ...]
    body: type | None = None
    stream: Any = None
    example: Mapping[str, Any] | None = None
    media: str = "application/json"
    query: Mapping[str, Mapping[str, Any]] = attrs.field(factory=dict)
    error: type = ErrorObject
    named_events: bool = False
