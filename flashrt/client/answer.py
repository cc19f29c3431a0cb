"""One answer: folded from the pieces of its stream, and shown while it grows."""

from typing import Any

import attrs

from flashrt.client.chunks import Block, CallPiece, Chunk, MessagePiece, Usage
from flashrt.client.screen import Kind, Screen

Message = dict[str, Any]

CUT_OFF = "the answer is cut off: its limit of tokens is reached"


@attrs.define
class Call:
    """A call as far as it has come. `arguments` is JSON text."""

    id: str = ""
    name: str = ""
    arguments: str = ""

    def message(self) -> Message:
        """As it stands in the message of the assistant."""
        function = {"name": self.name, "arguments": self.arguments}
        return {"id": self.id, "type": "function", "function": function}


@attrs.define
class Answer:
    """What has come so far."""

    text: str = ""
    thinking: str = ""
    finish_reason: str | None = None
    usage: Usage = attrs.field(factory=Usage)
    block: Block = attrs.field(factory=Block)
    _calls: dict[int, Call] = attrs.field(factory=dict)

    @property
    def calls(self) -> list[Call]:
        """The calls to run: none of an answer that was cut off, since its last one is a piece."""
        return list(self._calls.values()) if self.finish_reason == "tool_calls" else []

    def take(self, chunk: Chunk, screen: Screen) -> None:
        """Add a chunk, and show what is new in it."""
        for choice in chunk.choices:
            self._take_piece(choice.delta, screen)
            self.finish_reason = choice.finish_reason or self.finish_reason
        self.usage = chunk.usage or self.usage
        self.block = chunk.flashrt or self.block
        if any(choice.finish_reason == "length" for choice in chunk.choices):
            screen.line(Kind.NOTE, CUT_OFF)

    def message(self) -> Message:
        """As the conversation keeps it. The thinking goes back too: the server has it hot."""
        message: Message = {"role": "assistant", "content": self.text}
        if self.thinking:
            message["reasoning_content"] = self.thinking
        if self.calls:
            message["tool_calls"] = [call.message() for call in self.calls]
        return message

    def _take_piece(self, piece: MessagePiece, screen: Screen) -> None:
        thinking, text = piece.reasoning_content or "", piece.content or ""
        self.thinking += thinking
        self.text += text
        screen.show(Kind.THINKING, thinking)
        screen.show(Kind.ANSWER, text)
        for call in piece.tool_calls or ():
            self._take_call(call, screen)

    def _take_call(self, piece: CallPiece, screen: Screen) -> None:
        if piece.index not in self._calls:
            self._calls[piece.index] = Call()
            screen.end_line()
        call = self._calls[piece.index]
        name, arguments = piece.function.name or "", piece.function.arguments or ""
        call.id += piece.id or ""
        call.name += name
        call.arguments += arguments
        screen.show(Kind.CALL, f"-> {name} " if name else "")
        screen.show(Kind.CALL, arguments)
