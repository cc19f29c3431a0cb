"""The deltas of one answer, gathered as a client does it."""

import attrs

from flashrt.chat.deltas import Delta, TextDelta, ThinkingDelta, ToolCallArguments, ToolCallStart
from flashrt.chat.visible import Visible


@attrs.define
class Heard:
    """Everything that was said so far. Calls are numbered from 0 in their order."""

    strips: bool = True
    texts: list[str] = attrs.field(factory=list)
    thoughts: list[str] = attrs.field(factory=list)
    names: list[str] = attrs.field(factory=list)
    arguments: list[list[str]] = attrs.field(factory=list)

    def take(self, delta: Delta) -> None:
        """One more delta."""
        match delta:
            case TextDelta(text):
                self.texts.append(text)
            case ThinkingDelta(text):
                self.thoughts.append(text)
            case ToolCallStart(name=name):
                self.names.append(name)
                self.arguments.append([])
            case ToolCallArguments(index, text):
                self.arguments[index].append(text)

    @property
    def visible(self) -> Visible:
        """Joined."""
        calls = zip(self.names, map("".join, self.arguments), strict=True)
        return Visible("".join(self.texts), tuple(calls), "".join(self.thoughts), self.strips)
