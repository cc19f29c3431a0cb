"""What every reader of an answer offers, and the reader for answers without structure."""

from typing import Protocol

import attrs

from flashrt.chat.deltas import Delta, TextDelta


@attrs.frozen
class Said:
    """A delta, and where in the answer's text the first character of a TextDelta stands."""

    delta: Delta
    at: int = -1


class Reads(Protocol):
    """Turns text and control tokens into deltas; `position` counts characters read."""

    position: int

    @property
    def complete_calls(self) -> int: ...
    @property
    def is_thinking(self) -> bool: ...
    @property
    def is_text(self) -> bool: ...
    def text(self, text: str) -> list[Said]: ...
    def control(self, literal: str) -> list[Said]: ...
    def finish(self, *, cut_off: bool) -> list[Said]: ...


class PlainReader:
    """All text is text; control tokens are not shown. For answers without structure."""

    complete_calls = 0
    is_thinking = False
    is_text = True

    def __init__(self) -> None:
        self.position = 0

    def text(self, text: str) -> list[Said]:
        """As it stands."""
        at = self.position
        self.position += len(text)
        return [Said(TextDelta(text), at)] if text else []

    def control(self, literal: str) -> list[Said]:
        """Not shown."""
        self.position += len(literal)
        return []

    def finish(self, *, cut_off: bool) -> list[Said]:
        """Nothing is ever held back."""
        return []
