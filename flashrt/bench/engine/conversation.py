"""An agent's conversation that grows: each tool result is answered by the next tool call.

The call is asked for with `tool_choice` and has one parameter of a few possible values, so that any
model completes one in some twenty tokens, also one whose weights are random.
"""

import json
from collections.abc import Iterator
from typing import Any

import attrs

from flashrt.errors import CannotServe

FILES = ("README.md", "setup.cfg", "server.py", "tests.py")
LINE = "def handle_{number}(request):  # keeps what was asked for\n    return render(request)\n"

TOOL: dict[str, Any] = {
    "type": "function",
    "function": {
        "name": "read_file",
        "description": "Read a file of the current folder.",
        "parameters": {
            "type": "object",
            "properties": {"path": {"type": "string", "enum": FILES}},
            "required": ["path"],
            "additionalProperties": False,
        },
    },
}
CALL_TOKENS_MAX = 256


class NoCall(CannotServe):
    """The answer is not what was asked for; the words say what it was."""


@attrs.frozen
class Answer:
    """One streamed answer."""

    call: dict[str, Any]
    """As it goes back into the conversation."""
    prompt_tokens: int
    completion_tokens: int
    record: dict[str, Any]
    """The server's `flashrt` block."""


@attrs.define
class Conversation:
    """Messages, and the requests that they make."""

    messages: list[dict[str, Any]] = attrs.field(factory=list)

    @classmethod
    def begun(cls, lines: int) -> "Conversation":
        """With so many lines of text that was there before."""
        text = "".join(LINE.format(number=number) for number in range(lines))
        task = f"Find out what this folder does. This was read before:\n{text}"
        return cls([{"role": "user", "content": task}])

    def body(self) -> bytes:
        """The request for the next call."""
        fields = {
            "model": "any",
            "messages": self.messages,
            "tools": [TOOL],
            "tool_choice": "required",
            "parallel_tool_calls": False,
            "chat_template_kwargs": {"enable_thinking": False},
            "max_tokens": CALL_TOKENS_MAX,
            "temperature": 0,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        return json.dumps(fields).encode()

    def goes_on(self, answer: Answer, turn: int, lines: int) -> None:
        """Take the call, and a tool result of so many lines."""
        text = "".join(LINE.format(number=1000 * turn + number) for number in range(lines))
        call = {"id": answer.call["id"], "type": "function", "function": answer.call["function"]}
        self.messages += [
            {"role": "assistant", "content": "", "tool_calls": [call]},
            {"role": "tool", "tool_call_id": call["id"], "content": text},
        ]


def read_answer(body: bytes) -> Answer:
    """The answer in a stream of events. Raises NoCall."""
    call: dict[str, Any] = {"id": "", "function": {"name": "", "arguments": ""}}
    usage: dict[str, int] = {}
    record: dict[str, Any] = {}
    reason = None
    for event in _events(body):
        if "error" in event:
            raise NoCall(f"the server answered {event['error']}")
        usage, record = event.get("usage") or usage, event.get("flashrt") or record
        for choice in event.get("choices", ()):
            reason = choice.get("finish_reason") or reason
            for piece in choice["delta"].get("tool_calls", ()):
                _extend(call, piece)
    if reason != "tool_calls":
        raise NoCall(f"no tool call was completed: the answer ended by {reason!r}")
    return Answer(call, usage["prompt_tokens"], usage["completion_tokens"], record)


def _extend(call: dict[str, Any], piece: dict[str, Any]) -> None:
    call["id"] = piece.get("id") or call["id"]
    for name, text in piece.get("function", {}).items():
        call["function"][name] += text or ""


def _events(body: bytes) -> Iterator[dict[str, Any]]:
    for line in body.decode().splitlines():
        if line.startswith("data: ") and line != "data: [DONE]":
            yield json.loads(line.removeprefix("data: "))
