"""Stop strings, found character by character in text that comes in pieces."""

from collections.abc import Sequence

import attrs


@attrs.frozen
class Shown:
    """Text that may be shown now; `cut` is where in the answer a completed stop string begins, and
    `string` is that one."""

    text: str
    cut: int | None = None
    string: str | None = None


class StopStrings:
    """The stop string that is complete first ends the text in front of it.

    If several are complete with the same character, the longest wins, so nothing of it is shown.
    Held back is only what may still become one: the longest true partial match.
    """

    def __init__(self, strings: Sequence[str]) -> None:
        """Empty strings are dropped: they would stop everything."""
        self._patterns = [_Pattern.of(string) for string in strings if string]
        self._matched = [0] * len(self._patterns)
        self._held = ""
        self._held_at: list[int] = []

    def feed(self, text: str, at: int) -> Shown:
        """Take text whose first character stands at `at`. Nothing may be fed after a cut."""
        if not self._patterns:
            return Shown(text)
        held = len(self._held)
        text = self._held + text
        places = [*self._held_at, *range(at, at + len(text) - held)]
        for i in range(held, len(text)):
            longest = self._advance(text[i])
            if longest:
                begin = i + 1 - len(longest)
                self._held, self._held_at = "", []
                return Shown(text[:begin], places[begin], longest)
        safe = len(text) - max(self._matched)
        self._held, self._held_at = text[safe:], places[safe:]
        return Shown(text[:safe])

    def flush(self) -> str:
        """What was held back, since no more text follows it."""
        held, self._held, self._held_at = self._held, "", []
        self._matched = [0] * len(self._patterns)
        return held

    def _advance(self, letter: str) -> str:
        """Move every pattern on; the longest that is complete now, or none."""
        complete = ""
        for i, pattern in enumerate(self._patterns):
            self._matched[i] = pattern.after(self._matched[i], letter)
            if self._matched[i] == len(pattern.string):
                complete = max(complete, pattern.string, key=len)
        return complete


@attrs.frozen
class _Pattern:
    """`borders[n]`: the longest proper prefix that the first n characters also end with."""

    string: str
    borders: tuple[int, ...]

    @classmethod
    def of(cls, string: str) -> "_Pattern":
        borders = [0, 0]
        for letter in string[1:]:
            border = borders[-1]
            while border and string[border] != letter:
                border = borders[border]
            borders.append(border + (string[border] == letter))
        return cls(string, tuple(borders))

    def after(self, matched: int, letter: str) -> int:
        """How much is matched after one more letter."""
        while matched and (matched == len(self.string) or self.string[matched] != letter):
            matched = self.borders[matched]
        return matched + (self.string[matched] == letter)
