"""A tool call inside thinking: a draft, unless it turns out to be how the answer ends."""

from enum import Enum

from flashrt.chat.deltas import TextDelta, ThinkingDelta, ToolCallStart
from flashrt.chat.reads import Reads, Said


class CallsInThinking(Enum):
    """What becomes of a tool call that is written inside the think block.

    TAKE_LAST: a model may forget to close its thinking, so complete calls are taken that end the
    answer while the block is still open. Every other one was only thought.
    """

    IGNORE = "ignore"
    TAKE_LAST = "take_last"


class Draft:
    """Reads what may be calls at the end of thinking, and keeps the text in case they are not."""

    def __init__(self, reader: Reads) -> None:
        """`reader` stands in text, at the place where the call opens."""
        self._reader = reader
        self._raw: list[str] = []
        self._said: list[Said] = []

    def text(self, text: str) -> bool:
        """Take further text; False as soon as it is certain that this does not end the answer."""
        self._raw.append(text)
        return self._keep(self._reader.text(text))

    def control(self, literal: str, *, shown: bool) -> bool:
        """Take a control token, `shown` where thinking would show it."""
        self._raw.append(literal if shown else "")
        return self._keep(self._reader.control(literal))

    @property
    def raw(self) -> str:
        """What thinking shows of it if it was a draft."""
        return "".join(self._raw)

    def ended(self) -> list[Said] | None:
        """The model ended the answer here: its calls, or None if they are not all whole."""
        kept = self._keep(self._reader.finish(cut_off=False))
        calls = [said for said in self._said if not isinstance(said.delta, TextDelta)]
        started = sum(isinstance(said.delta, ToolCallStart) for said in calls)
        whole = self._reader.complete_calls
        return calls if kept and 0 < whole == started else None

    def _keep(self, said: list[Said]) -> bool:
        self._said += said
        return not any(_is_shown(one) for one in said)


def _is_shown(said: Said) -> bool:
    delta = said.delta
    return isinstance(delta, TextDelta | ThinkingDelta) and bool(delta.text.strip())
