"""A tool call written as one JSON object: `{"name": ..., "arguments": {...}}`, read in pieces."""

import json
from collections.abc import Callable, Container
from typing import Any

from flashrt.chat.json_text import IN_STRING, JsonText, StringText
from flashrt.chat.markers import NAME_MAX

ARGUMENTS = ("arguments", "parameters")
"""Keys that may hold the arguments: an object, a string that spells one, or null."""

OTHER_KEYS = ("name", "type", "id")

SCALAR_MAX = 1000
"""Characters in a value that is no arguments."""


class JsonCall:
    """Reads the object character by character. `broken` in front of what no call contains.

    An object with any other key describes a tool, or is an example; it is no call.
    """

    def __init__(self, offered: Container[str] | None) -> None:
        """`offered`: the only names that make it a call; None: whatever the model writes."""
        self.name: str | None = None
        self.over = False
        self.broken = False
        self._offered = offered
        self._read: Callable[[str, int], int] = self._opening
        self._string: StringText | None = None
        self._key = ""
        self._seen: set[str] = set()
        self._scalar = JsonText()
        self._scalar_text = ""
        self._arguments: JsonText | None = None
        self._written = ""

    @classmethod
    def of_function(cls, name: str) -> "JsonCall":
        """Only the arguments of a call of `name`, behind their first brace."""
        call = cls(None)
        call.name = name
        call._arguments = JsonText()
        call._arguments.feed("{")
        call._read = call._in_function
        return call

    def feed(self, text: str) -> int:
        """Take text; how much of it belongs to the call."""
        at = 0
        while at < len(text) and not self.over and not self.broken:
            at = self._read(text, at)
        return at

    @property
    def is_named(self) -> bool:
        """Whether it is certain that this is a call, and of what."""
        return self.name is not None and (self._arguments is not None or self.over)

    @property
    def is_whole(self) -> bool:
        """Whether the arguments are over, and so nothing but closings may be missing."""
        return self.over or (self._arguments is not None and self._arguments.over)

    @property
    def may_close(self) -> bool:
        """Whether an end of the call that stands here is one: only braces were forgotten."""
        inside = self._open_arguments()
        return self.is_whole or (inside is not None and inside.may_close)

    @property
    def in_string(self) -> bool:
        """Whether whatever comes now, a marker too, is part of a string."""
        if self._read == self._in_spelled:
            return not self.is_whole
        scalar = self._read == self._in_scalar and self._scalar.in_string
        inside = self._open_arguments()
        return self._string is not None or scalar or (inside is not None and inside.in_string)

    def written(self) -> str:
        """The JSON text of the arguments, as far as it is new; the last brace only by `close`."""
        written, self._written = self._written, ""
        return written

    def close(self) -> str:
        """What is missing of the arguments. Only where `may_close`."""
        if self._arguments is None:
            return "{}"
        return self.written() + ("}" if self._arguments.over else self._arguments.close())

    # -- one method for each place in the object ------------------------------------------------

    def _opening(self, text: str, at: int) -> int:
        return self._expect(text[at], at, {"{": self._key_or_end})

    def _key_or_end(self, text: str, at: int) -> int:
        if text[at] == '"':
            self._string, self._key = StringText(), ""
        return self._expect(text[at], at, {'"': self._in_key, "}": self._end})

    def _in_key(self, text: str, at: int) -> int:
        key, at = self._text_of_string(text, at)
        self._key += key
        if self._string is None:
            kind = "arguments" if self._key in ARGUMENTS else self._key
            self.broken = kind in self._seen or kind not in (*ARGUMENTS, *OTHER_KEYS)
            self._seen.add(kind)
            self._read = self._colon
        return at

    def _colon(self, text: str, at: int) -> int:
        return self._expect(text[at], at, {":": self._value})

    def _value(self, text: str, at: int) -> int:
        letter = text[at]
        if letter.isspace():
            return at + 1
        if self._key in ARGUMENTS and letter == "{":
            self._arguments, self._read = JsonText(), self._in_arguments
            return at
        if self._key in ARGUMENTS and letter == '"':
            self._string, self._read = StringText(), self._in_spelled
            return at + 1
        self._scalar, self._scalar_text, self._read = JsonText(), "", self._in_scalar
        return at

    def _in_scalar(self, text: str, at: int) -> int:
        # Letter by letter, so that where it breaks does not depend on how the text was cut.
        written, moved = self._scalar.feed(text[at])
        self._scalar_text += written
        self.broken = self._scalar.broken or len(self._scalar_text) > SCALAR_MAX
        if self._scalar.over and not self.broken:
            self._take_scalar(json.loads(self._scalar_text))
        return at + moved

    def _take_scalar(self, value: Any) -> None:
        self._read = self._comma_or_end
        if self._key in ARGUMENTS:
            self.broken = value is not None
            if not self.broken:
                self._write("{}")
        elif self._key == "type":
            self.broken = value != "function"
        elif self._key == "name":
            self.broken = not self._is_name(value)
            self.name = None if self.broken else value.strip()

    def _is_name(self, value: Any) -> bool:
        if not isinstance(value, str) or not 0 < len(value.strip()) <= NAME_MAX:
            return False
        return self._offered is None or value.strip() in self._offered

    def _in_arguments(self, text: str, at: int) -> int:
        at = self._write(text, at)
        if self.is_whole:
            self._read = self._comma_or_end
        return at

    def _in_function(self, text: str, at: int) -> int:
        at = self._write(text, at)
        self.over = self.is_whole
        return at

    def _in_spelled(self, text: str, at: int) -> int:
        """A string that spells an object; letter by letter, as above, where it is no plain text."""
        plain = self._plain_run(text, at)
        if plain:
            self._write(plain)
            return at + len(plain)
        spelled, _ = self._text_of_string(text[at], 0)
        for letter in spelled:
            self._spell(letter)
        if self._string is None:
            self._read = self._comma_or_end
            if self._arguments is None:
                self._write("{}")
            self.broken = self.broken or not self.is_whole
        return at + 1

    def _plain_run(self, text: str, at: int) -> str:
        """Letters that stand for themselves in both strings, where one is in the other."""
        inside = self._arguments is not None and self._arguments.in_string
        if not inside or self._string is None or self._string.is_in_escape:
            return ""
        special = IN_STRING.search(text, at)
        return text[at : special.start() if special else len(text)]

    def _spell(self, letter: str) -> None:
        if letter.isspace() and (self._arguments is None or self.is_whole):
            return
        if self._arguments is None and letter != "{":
            self.broken = True
        elif not self.broken:
            self.broken = self._write(letter) == 0

    def _comma_or_end(self, text: str, at: int) -> int:
        return self._expect(text[at], at, {",": self._key_or_end, "}": self._end})

    def _end(self, text: str, at: int) -> int:
        raise AssertionError("nothing is read behind the end")

    # -- steps ----------------------------------------------------------------------------------

    def _expect(self, letter: str, at: int, ways: dict[str, Callable[[str, int], int]]) -> int:
        """Blanks, or one of a few characters that lead on."""
        if letter.isspace():
            return at + 1
        if letter not in ways:
            self.broken = True
            return at
        self._read = ways[letter]
        if self._read == self._end:
            self.over = self.name is not None
            self.broken = not self.over
        return at + 1

    def _text_of_string(self, text: str, at: int) -> tuple[str, int]:
        assert self._string is not None
        inside, at = self._string.feed(text, at)
        if self._string.over:
            self._string = None
        return inside, at

    def _open_arguments(self) -> JsonText | None:
        return self._arguments if self._read in (self._in_arguments, self._in_function) else None

    def _write(self, text: str, at: int = 0) -> int:
        """Let the arguments grow; where in `text` they stopped."""
        if self._arguments is None:
            self._arguments = JsonText()
        written, at = self._arguments.feed(text, at)
        self._written += written[:-1] if self._arguments.over else written
        self.broken = self._arguments.broken
        return at
