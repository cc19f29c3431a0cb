"""What a client makes of an answer: its deltas, joined."""

from collections.abc import Iterable, Iterator
from itertools import count
from typing import Any

import attrs

from flashrt.chat.answer import Answer
from flashrt.chat.deltas import (
    Delta,
    Ending,
    TextDelta,
    ThinkingDelta,
    ToolCallArguments,
    ToolCallEnd,
    ToolCallStart,
)
from tests.chat.vocabulary import TOOLS, tokenizer


@attrs.define
class Transcript:
    """The joined text of each kind.

    `complete` has the indexes of whole calls, `order` the kinds as they follow each other.
    """

    text: str = ""
    thinking: str = ""
    calls: list[tuple[str, str]] = attrs.field(factory=list)
    complete: list[int] = attrs.field(factory=list)
    order: list[str] = attrs.field(factory=list)

    def add(self, deltas: Iterable[Delta]) -> None:
        """Take in deltas as a client would: an index must name the newest call."""
        for delta in deltas:
            match delta:
                case TextDelta(text):
                    self.text += text
                case ThinkingDelta(text):
                    self.thinking += text
                case ToolCallStart(index, _, name):
                    assert index == len(self.calls), "calls are not numbered in their order"
                    self.calls.append((name, ""))
                case ToolCallArguments(index, text):
                    assert index == len(self.calls) - 1, "arguments of another call"
                    name, before = self.calls[index]
                    self.calls[index] = (name, before + text)
                case ToolCallEnd(index):
                    assert index == len(self.calls) - 1, "the end of another call"
                    assert index not in self.complete, "a call that ends twice"
                    self.complete.append(index)
            kind = type(delta).__name__
            if not self.order or self.order[-1] != kind:
                self.order.append(kind)

    def begins(self, other: "Transcript") -> bool:
        """Whether `other` may be what became of this one."""
        calls = zip(self.calls, other.calls, strict=False)
        return (
            other.text.startswith(self.text)
            and other.thinking.startswith(self.thinking)
            and len(self.calls) <= len(other.calls)
            and all(a[0] == b[0] and b[1].startswith(a[1]) for a, b in calls)
        )


def new_answer(**options: Any) -> Answer:
    """A chat answer that offers tools, unless the options say otherwise."""
    numbers: Iterator[int] = count()
    settings: dict[str, Any] = {
        "tokenizer": tokenizer(),
        "stop_ids": frozenset({tokenizer().control["<|im_end|>"]}),
        "reads_structure": True,
        "tools": TOOLS,
        "new_call_id": lambda: f"call_{next(numbers)}",
    }
    return Answer(**settings | options)


def answered(ids: Iterable[int], burst: int = 1, **options: Any) -> tuple[Transcript, Ending]:
    """Feed an answer in bursts; where it has not ended by then, the window is full."""
    answer = new_answer(**options)
    transcript = Transcript()
    rest = list(ids)
    ending = None
    while rest and ending is None:
        fed = answer.feed(tuple(rest[:burst]))
        del rest[:burst]
        transcript.add(fed.deltas)
        ending = fed.ending
    if ending is None:
        fed = answer.window_end()
        transcript.add(fed.deltas)
        ending = fed.ending
    assert ending is not None
    return transcript, ending
