"""JSON as models write it, read in pieces and written again as JSON that is always right."""

import json
import re
from enum import Enum, auto

DEPTH_MAX = 100
"""Containers inside each other; clients' own parsers have a limit too."""

IN_STRING = re.compile(r'["\\]')
BARE = re.compile(r'[^\s,:{}\[\]"<>]+')
NUMBER = re.compile(r"-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?", re.ASCII)
WORDS = {"true": "true", "false": "false", "null": "null"} | {
    "True": "true",  # Python's names
    "False": "false",
    "None": "null",
}
ESCAPES = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", '"': '"', "\\": "\\", "/": "/"}
HIGH = range(0xD800, 0xDC00)
LOW = range(0xDC00, 0xE000)


class StringText:
    """The inside of a JSON string, from behind its opening quote. `over` behind the closing one.

    A line break as it is, and a backslash that begins no escape, are taken as they stand.
    """

    def __init__(self) -> None:
        self.over = False
        self._escape = ""
        self._high = 0  # the first half of a pair of surrogates

    @property
    def is_in_escape(self) -> bool:
        """Whether what comes next may change what came before."""
        return bool(self._escape or self._high)

    def feed(self, text: str, at: int = 0) -> tuple[str, int]:
        """The characters that `text` from `at` on stands for, and where reading stopped."""
        out: list[str] = []
        while at < len(text) and not self.over:
            if self._escape:
                at += self._go_on(text[at], out)
                continue
            special = IN_STRING.search(text, at)
            end = special.start() if special else len(text)
            if end > at:
                self._add(text[at:end], out)
            elif text[at] == "\\":
                self._escape = "\\"
                end += 1
            else:
                self._add("", out)
                self.over = True
                end += 1
            at = end
        return "".join(out), at

    def _go_on(self, letter: str, out: list[str]) -> int:
        """One more character of an escape; 0 if it belongs to none."""
        escape = self._escape + letter
        if len(escape) == 2 and letter != "u":
            self._escape = ""
            self._add(ESCAPES.get(letter, escape), out)
        elif len(escape) > 2 and letter not in "0123456789abcdefABCDEF":
            self._add(self._escape, out)
            self._escape = ""
            return 0
        elif len(escape) == 6:
            self._escape = ""
            self._add_code(int(escape[2:], 16), out)
        else:
            self._escape = escape
        return 1

    def _add_code(self, code: int, out: list[str]) -> None:
        if code in LOW and self._high:
            high, self._high = self._high, 0
            out.append(chr(0x10000 + ((high - HIGH.start) << 10) + code - LOW.start))
        elif code in HIGH:
            self._add("", out)
            self._high = code
        else:
            self._add("\ufffd" if code in LOW else chr(code), out)

    def _add(self, text: str, out: list[str]) -> None:
        if self._high:  # half a pair is no character
            self._high = 0
            out.append("\ufffd")
        out.append(text)


class _Next(Enum):
    """What may come next in a JSON text."""

    VALUE = auto()
    VALUE_OR_END = auto()
    KEY = auto()
    KEY_OR_END = auto()
    COLON = auto()
    COMMA_OR_END = auto()


class JsonText:
    """One JSON value. What `feed` returns is valid so far, whatever came in, and without blanks.

    Forgiven: a comma too many at an end, Python's names of constants, NaN and the like (strings),
    line breaks in strings. On anything else it is `broken`, and stands in front of it.
    """

    def __init__(self) -> None:
        self.over = False
        self.broken = False
        self._open: list[str] = []
        self._next = _Next.VALUE
        self._comma = ""
        self._string: StringText | None = None
        self._bare = ""

    def feed(self, text: str, at: int = 0) -> tuple[str, int]:
        """The JSON text that is certain now, and where in `text` reading stopped."""
        out: list[str] = []
        while at < len(text) and not self.over and not self.broken:
            if self._string is not None:
                inside, at = self._string.feed(text, at)
                out.append(quoted(inside)[1:-1])
                if self._string.over:
                    self._string = None
                    out.append('"')
                    if self._next is not _Next.COLON:
                        self._value_ends()
                continue
            bare = BARE.match(text, at)
            if bare and self._takes_value():
                self._bare += bare[0]
                at = bare.end()
                continue
            out.append(self._end_bare())
            if not self.over and not bare:
                at += self._letter(text[at], out)
            elif bare:
                self.broken = True
        return "".join(out), at

    @property
    def in_string(self) -> bool:
        """Whether whatever comes now is part of a string."""
        return self._string is not None

    @property
    def may_close(self) -> bool:
        """Whether nothing but closing brackets is missing."""
        ends = (_Next.VALUE_OR_END, _Next.KEY_OR_END, _Next.COMMA_OR_END)
        whole = bool(self._bare) or self._next in ends or bool(self._comma)
        return self.over or (bool(self._open) and self._string is None and whole)

    def close(self) -> str:
        """The closing brackets that are missing. Only where `may_close`."""
        closing = "".join("}" if bracket == "{" else "]" for bracket in reversed(self._open))
        bare = self._end_bare()
        self.over = True
        return bare + closing

    def _takes_value(self) -> bool:
        return self._next in (_Next.VALUE, _Next.VALUE_OR_END)

    def _end_bare(self) -> str:
        if not self._bare:
            return ""
        word, self._bare = self._bare, ""
        self._value_ends()
        return self._begin_value() + _bare_value(word)

    def _letter(self, letter: str, out: list[str]) -> int:
        """One character outside of strings; 0 if it cannot stand here."""
        if letter.isspace():
            return 1
        takes_value = self._takes_value()
        if letter == '"' and (takes_value or self._next in (_Next.KEY, _Next.KEY_OR_END)):
            out.append(self._begin_value() + '"')
            self._next = _Next.COMMA_OR_END if takes_value else _Next.COLON
            self._string = StringText()
        elif letter in "{[" and takes_value and len(self._open) < DEPTH_MAX:
            out.append(self._begin_value() + letter)
            self._open.append(letter)
            self._next = _Next.KEY_OR_END if letter == "{" else _Next.VALUE_OR_END
        elif letter == ":" and self._next is _Next.COLON:
            out.append(letter)
            self._next = _Next.VALUE
        elif letter == "," and self._next is _Next.COMMA_OR_END:
            self._comma = ","
            self._next = _Next.KEY if self._open[-1] == "{" else _Next.VALUE
        elif letter in "}]" and self._may_end(letter):
            out.append(letter)
            self._open.pop()
            self._comma = ""
            self._value_ends()
        else:
            self.broken = True
            return 0
        return 1

    def _may_end(self, letter: str) -> bool:
        ends = (_Next.VALUE_OR_END, _Next.KEY_OR_END, _Next.COMMA_OR_END)
        fits = bool(self._open) and self._open[-1] + letter in ("{}", "[]")
        return fits and (self._next in ends or bool(self._comma))

    def _begin_value(self) -> str:
        comma, self._comma = self._comma, ""
        return comma

    def _value_ends(self) -> None:
        self._next = _Next.COMMA_OR_END
        self.over = not self._open


def quoted(text: str) -> str:
    """Text as a JSON string."""
    return json.dumps(text, ensure_ascii=False)


def _bare_value(word: str) -> str:
    if word in WORDS:
        return WORDS[word]
    if NUMBER.fullmatch(word) and abs(float(word)) != float("inf"):
        return word
    return quoted(word)
