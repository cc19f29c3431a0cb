"""A conversation: what was said, and turns that are added to it whole or not at all."""

import time
from typing import Any

import attrs

from flashrt.client.answer import Answer, Message
from flashrt.client.figures import figures
from flashrt.client.screen import Kind, Screen
from flashrt.client.server import Server
from flashrt.client.tools import Toolbox

SHOWN_CHARS_MAX = 400
"""How much of a tool's result is shown; the model gets more of it."""


@attrs.define
class Conversation:
    """One conversation with one model. `wish`: fields of every request."""

    server: Server
    screen: Screen
    toolbox: Toolbox
    wish: dict[str, Any]
    rounds_max: int
    system: str | None = None
    thinks: bool = False
    messages: list[Message] = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self.begin()

    def begin(self) -> None:
        """Forget what was said."""
        self.messages = [] if self.system is None else [_message("system", self.system)]

    def turn(self, text: str) -> None:
        """Say something, and run tools until there is an answer without calls.

        What ends it early, such as Ctrl-C or NoAnswer, leaves the conversation as it was.
        """
        said = [_message("user", text)]
        for _ in range(self.rounds_max):
            if not self._round(said):
                break
        else:
            self.screen.line(Kind.NOTE, f"stopped after {self.rounds_max} rounds of tools")
        self.messages += said

    def _round(self, said: list[Message]) -> bool:
        """One answer and the results of its calls, added to `said`; whether there were calls."""
        answer = self._ask(said)
        said.append(answer.message())
        for call in answer.calls:
            result = self.toolbox.run(call)
            self.screen.line(Kind.NOTE, _shown(result["content"]))
            said.append(result)
        return bool(answer.calls)

    def _ask(self, said: list[Message]) -> Answer:
        started = time.monotonic()
        answer = Answer()
        with self.server.chat(self._body(said)) as chunks:
            for chunk in chunks:
                answer.take(chunk, self.screen)
        seconds = time.monotonic() - started
        self.screen.line(Kind.NOTE, figures(answer.usage, answer.block, seconds=seconds))
        return answer

    def _body(self, said: list[Message]) -> dict[str, Any]:
        offers = self.toolbox.offers()
        return {
            "messages": [*self.messages, *said],
            "stream": True,
            "stream_options": {"include_usage": True},
            "enable_thinking": self.thinks,
            **({"tools": offers} if offers else {}),
            **self.wish,
        }


def _message(role: str, text: str) -> Message:
    return {"role": role, "content": text}


def _shown(text: str) -> str:
    text = text.rstrip()
    return text if len(text) <= SHOWN_CHARS_MAX else f"{text[:SHOWN_CHARS_MAX]} …"
