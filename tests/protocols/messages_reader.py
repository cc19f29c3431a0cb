"""What a client makes of a Messages stream: a small machine that takes no event out of order."""

import json
from typing import Any

import attrs
from anthropic.types import Message, RawMessageStreamEvent
from anthropic.types.beta import BetaMessage, BetaRawMessageStreamEvent
from pydantic import TypeAdapter

Json = dict[str, Any]

EVENTS = (TypeAdapter(RawMessageStreamEvent), TypeAdapter(BetaRawMessageStreamEvent))

PIECES = {
    "text_delta": ("text", "text"),
    "thinking_delta": ("thinking", "thinking"),
    "signature_delta": ("thinking", "signature"),
    "input_json_delta": ("tool_use", "partial_json"),
}
"""Of a delta: the kind of block that it belongs into, and its field."""


def named_events(written: bytes) -> list[Json]:
    """The events of a stream, each under the name that it has itself, each by the SDK's types."""
    *frames, rest = written.split(b"\n\n")
    assert rest == b""
    events = []
    for frame in frames:
        name, data = frame.split(b"\n")
        event = json.loads(data.removeprefix(b"data: "))
        assert name == b"event: " + event["type"].encode()
        if event["type"] not in ("ping", "error"):
            for types in EVENTS:
                types.validate_json(data.removeprefix(b"data: "), strict=True)
        events.append(event)
    return events


def whole(written: bytes) -> Json:
    """A body, by the SDK's types."""
    for kind in (Message, BetaMessage):
        kind.model_validate_json(written, strict=True)
    return dict(json.loads(written))


@attrs.define
class Reader:
    """Reads events in their order, and has the message in the end."""

    message: Json | None = None
    last: Json | None = None
    open: int | None = None
    error: Json | None = None

    def read(self, written: bytes) -> Json:
        """A whole stream; the message as its body would have it."""
        for event in named_events(written):
            self.take(event)
        assert self.message is not None
        assert self.last is not None
        return self.message

    def take(self, event: Json) -> None:
        """One event; fails where it may not come."""
        assert self.last is None, "nothing comes behind the end"
        assert self.error is None, "nothing comes behind an error"
        getattr(self, f"_{event['type']}")(event)

    def _ping(self, event: Json) -> None:
        assert event.keys() <= {"type", "flashrt"}

    def _error(self, event: Json) -> None:
        self.error = event

    def _message_start(self, event: Json) -> None:
        assert self.message is None
        self.message = event["message"]
        assert self.message["content"] == []
        assert self.message["stop_reason"] is None

    def _content_block_start(self, event: Json) -> None:
        content = self._content()
        assert self.open is None, "one block at a time"
        assert event["index"] == len(content)
        block = dict(event["content_block"])
        assert all(not block[name] for name in ("text", "thinking", "input") if name in block)
        if block["type"] == "tool_use":
            block["input"] = ""
        self.open = event["index"]
        content.append(block)

    def _content_block_delta(self, event: Json) -> None:
        assert event["index"] == self.open
        block, delta = self._content()[event["index"]], event["delta"]
        kind, field = PIECES[delta["type"]]
        assert block["type"] == kind
        assert delta[field] != "", "an empty piece says nothing"
        assert not block.get("signature"), "a signature is the last piece"
        name = "input" if field == "partial_json" else field
        block[name] += delta[field]

    def _content_block_stop(self, event: Json) -> None:
        assert event["index"] == self.open
        block = self._content()[event["index"]]
        assert block["type"] != "thinking" or block["signature"]
        self.open = None

    def _message_delta(self, event: Json) -> None:
        assert self.open is None
        self._content()
        assert self.message is not None
        assert self.message["stop_reason"] is None
        self.message |= event["delta"]
        self.message["usage"] |= event["usage"]
        assert self.message["stop_reason"]

    def _message_stop(self, event: Json) -> None:
        assert self.message is not None
        assert self.message["stop_reason"], "why it ended comes first"
        self.message["flashrt"] = event["flashrt"]
        self.last = event

    def _content(self) -> list[Json]:
        assert self.message is not None, "the message starts first"
        content: list[Json] = self.message["content"]
        return content
