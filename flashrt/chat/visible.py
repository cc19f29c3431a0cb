"""An answer as a client sees it and may send it back, and the key by which it is known again."""

import json
import sys
from collections.abc import Iterable, Mapping
from typing import Any

import attrs

from flashrt.chat.messages import normalized
from flashrt.chat.outline import digest

NOT_JSON = (TypeError, ValueError, RecursionError)
"""What writing a value as JSON raises."""


CALL_BYTES = 100
"""Of Python's objects: an answer, or a call in it, beside its texts."""


def sorted_json(value: Any) -> str:
    """JSON in which the order of keys and the spelling are gone, and nothing else.

    1, 1.0 and true stay three values: templates write them in three ways.
    """
    return json.dumps(value, sort_keys=True, separators=(",", ":"))


def calls_text(message: Mapping[str, Any]) -> str:
    """The calls of a normalised message as text: names and arguments, nothing that counts them."""
    functions = [call["function"] for call in message.get("tool_calls") or ()]
    return sorted_json([[f["name"], f["arguments"]] for f in functions]) if functions else ""


def answer_key(content: str, calls: str) -> str:
    """The key of an answer with this text and these calls (see `calls_text`)."""
    return digest("answer", content, calls)


@attrs.frozen
class Visible:
    """What a client has of one answer. `calls`: names and the JSON text of their arguments.

    `strips`: the template leaves blanks around the text out, so they do not count.
    """

    content: str = ""
    calls: tuple[tuple[str, str], ...] = ()
    reasoning: str = ""
    strips: bool = True

    @property
    def size_bytes(self) -> int:
        """What it holds."""
        texts = (self.content, self.reasoning, *_flat(self.calls))
        return CALL_BYTES * (1 + len(self.calls)) + sum(map(sys.getsizeof, texts))

    def parts(self) -> tuple[str, str]:
        """Text and calls as they are when the answer comes back."""
        message = normalized([self._message()])[0]
        content = message["content"]
        try:
            calls = calls_text(message)
        except NOT_JSON:
            calls = "\n".join(_flat(self.calls))
        return (content.strip() if self.strips else content), calls

    def key(self) -> str:
        """The key of the part that this answer becomes when it comes back."""
        return answer_key(*self.parts())

    def _message(self) -> dict[str, Any]:
        calls = [
            {"function": {"name": name, "arguments": arguments}} for name, arguments in self.calls
        ]
        return {
            "role": "assistant",
            "content": self.content,
            "reasoning_content": self.reasoning,
            "tool_calls": calls,
        }


def _flat(calls: Iterable[tuple[str, str]]) -> Iterable[str]:
    for name, arguments in calls:
        yield from (name, arguments)
