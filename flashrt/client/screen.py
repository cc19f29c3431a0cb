"""Where everything is shown: the answer on stdout and all else on stderr, so that a pipe has the
answer alone. Only a terminal gets colours, and control characters made readable."""

import sys
import termios
from enum import Enum, auto
from typing import TextIO


class Kind(Enum):
    """What a text is."""

    ANSWER = auto()
    THINKING = auto()
    CALL = auto()
    NOTE = auto()
    FAULT = auto()


DIM, CYAN, RED, PLAIN = "\x1b[2m", "\x1b[36m", "\x1b[31m", "\x1b[0m"

STYLES = {Kind.THINKING: DIM, Kind.CALL: CYAN, Kind.NOTE: DIM, Kind.FAULT: RED}

TURNS_LETTERS = (*range(0x202A, 0x202F), *range(0x2066, 0x206A))

# What a model says must not move the cursor or turn letters round: the command that a person is
# asked about has to be the one that runs.
READABLE = {
    **{code: 0x2400 + code for code in range(32) if chr(code) not in "\n\t"},
    **dict.fromkeys((*range(0x7F, 0xA0), *TURNS_LETTERS), 0xFFFD),
}


YES = ("y", "yes")


class Screen:
    """A person's terminal, or the files in its place. Another kind of text begins a line."""

    def __init__(self) -> None:
        self._kind = Kind.ANSWER
        self._unfinished: TextIO | None = None

    @property
    def has_person(self) -> bool:
        """Whether somebody can be asked."""
        return sys.stdin.isatty()

    def show(self, kind: Kind, text: str) -> None:
        """Show a piece of a text at once."""
        if not text:
            return
        if kind is not self._kind:
            self.end_line()
        stream = sys.stdout if kind is Kind.ANSWER else sys.stderr
        stream.write(_styled(kind, text) if stream.isatty() else text)
        stream.flush()
        self._kind = kind
        self._unfinished = None if text.endswith("\n") else stream

    def line(self, kind: Kind, text: str) -> None:
        """Show whole lines."""
        self.end_line()
        self.show(kind, text + "\n")

    def end_line(self) -> None:
        """What comes next begins a line."""
        if self._unfinished is not None:
            print(file=self._unfinished, flush=True)
        self._unfinished = None

    def allows(self, question: str) -> bool:
        """Whether the person says yes. What was typed before the question is no answer to it."""
        termios.tcflush(sys.stdin, termios.TCIFLUSH)
        try:
            return self.read_line(f"{question} [y/N] ").strip().lower() in YES
        except EOFError:
            return False

    def read_line(self, prompt: str) -> str:
        """A line that the person types; raises EOFError. Nobody is prompted through a pipe."""
        self.end_line()
        if self.has_person and sys.stdout.isatty():
            return input(readable(prompt))  # line editing has to know the prompt
        if self.has_person:
            self.show(Kind.CALL, prompt)
            self._unfinished = None
        return input()


def readable(text: str) -> str:
    """Control characters as signs."""
    return text.translate(READABLE)


def _styled(kind: Kind, text: str) -> str:
    style = STYLES.get(kind, "")
    return f"{style}{readable(text)}{PLAIN}" if style else readable(text)
