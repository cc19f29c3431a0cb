"""What a strict client makes of a Responses stream: every law of the order of its events."""

import json
from typing import Any

from openai.types.responses import ResponseStreamEvent
from pydantic import TypeAdapter

EVENTS: TypeAdapter[Any] = TypeAdapter(ResponseStreamEvent)
LAST = {"response.completed", "response.incomplete", "response.failed"}

TEXTS = {
    # of a kind of item: the word of its text's events, and of its part's if it has one
    "message": ("output_text", "content_part"),
    "summary": ("reasoning_summary_text", "reasoning_summary_part"),
    "reasoning": ("reasoning_text", "content_part"),
    "function_call": ("function_call_arguments", None),
    "custom_tool_call": ("custom_tool_call_input", None),
}


def events(written: bytes) -> list[dict[str, Any]]:
    """The events, each with an `event:` line of its type, and valid by the official types."""
    found = []
    for block in written.decode().split("\n\n")[:-1]:
        name, data = block.split("\n")
        event = json.loads(data.removeprefix("data: "))
        assert name == f"event: {event['type']}"
        EVENTS.validate_python(event)
        found.append(event)
    return found


class Reader:
    """Reads events one by one; `output` is what was put together."""

    def __init__(self) -> None:
        self.next = 0
        self.response: dict[str, Any] | None = None
        self.items: list[dict[str, Any]] = []
        self.texts: list[str] = []
        self.done: set[int] = set()
        self.open: dict[int, list[str]] = {}
        """Of each item that is open, what must still come."""

    def read(self, event: dict[str, Any]) -> None:
        assert self.response is None, f"{event['type']} behind the end"
        assert event["sequence_number"] == self.next
        kind = event["type"]
        match self.next:
            case 0:
                assert kind == "response.created"
            case 1:
                assert kind == "response.in_progress"
        self.next += 1
        if kind in LAST:
            self.response = event["response"]
        elif "response" in event:
            assert event["response"]["status"] == "in_progress"
        elif kind == "response.output_item.added":
            self.added(event)
        else:
            self.inside(kind.removeprefix("response."), event)

    def added(self, event: dict[str, Any]) -> None:
        item = event["item"]
        assert event["output_index"] == len(self.items), "indices count up"
        assert item["status"] == "in_progress"
        assert item["id"] not in {one["id"] for one in self.items}
        still = [self.items[i]["type"] for i in self.open]
        assert not {"message", "reasoning"} & set(still), "one text at a time"
        self.open[len(self.items)] = []
        self.items.append(item)
        self.texts.append("")

    def inside(self, kind: str, event: dict[str, Any]) -> None:
        index = event["output_index"]
        assert index in self.open, f"{kind} outside of its item"
        steps = self.open[index]
        steps.append(kind)
        if kind == "output_item.done":
            self.item_done(index, event["item"], steps)
            return
        assert event["item_id"] == self.items[index]["id"]
        if kind.endswith(".delta"):
            assert event["delta"], "no event without a change"
            self.texts[index] += event["delta"]
        whole = next((event[f] for f in ("text", "arguments", "input") if f in event), None)
        if whole is not None:
            assert whole == self.texts[index], "the deltas are the text"
        if kind.endswith("part.done"):
            assert event["part"]["text"] == self.texts[index]
        if kind.endswith("part.added"):
            assert event["part"]["text"] == ""

    def item_done(self, index: int, item: dict[str, Any], steps: list[str]) -> None:
        began = self.items[index]
        assert {name: item[name] for name in ("id", "type")} == {
            name: began[name] for name in ("id", "type")
        }
        kind = "summary" if item.get("summary") else item["type"]
        word, part = TEXTS[kind]
        inner = [s for s in steps if s != f"{word}.delta"]
        parts = ([f"{part}.added"], [f"{part}.done"]) if part else ([], [])
        assert inner == [*parts[0], f"{word}.done", *parts[1], "output_item.done"]
        assert text_of(item) == self.texts[index]
        self.items[index] = item
        self.done.add(index)
        del self.open[index]

    def finish(self) -> dict[str, Any]:
        """The response at the end: its output is what was told, item by item."""
        assert self.response is not None, "no end"
        output = self.response["output"]
        assert [item["id"] for item in output] == [item["id"] for item in self.items]
        for index, item in enumerate(output):
            if index in self.done:
                assert item == self.items[index]
            else:
                assert item["status"] == "incomplete"
                assert text_of(item) == self.texts[index]
        return self.response


def text_of(item: dict[str, Any]) -> str:
    """All text of an item."""
    match item["type"]:
        case "function_call":
            return item["arguments"]
        case "custom_tool_call":
            return item["input"]
        case "message":
            return "".join(part["text"] for part in item["content"])
    return "".join(part["text"] for part in (*item["summary"], *item.get("content", ())))


def read(written: bytes) -> dict[str, Any]:
    """The final response of a whole stream that keeps every law."""
    reader = Reader()
    for event in events(written):
        reader.read(event)
    return reader.finish()
