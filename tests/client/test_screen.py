"""What is shown where."""

import io
import pty
import sys
from typing import BinaryIO

import pytest

from flashrt.client.screen import Kind, Screen, readable


class Terminal(io.StringIO):
    """A stream that says it is one."""

    def isatty(self) -> bool:
        return True


def test_a_pipe_gets_the_answer_alone(capsys):
    """Everything else is on stderr; each stream has whole lines."""
    screen = Screen()
    screen.show(Kind.THINKING, "so ")
    screen.show(Kind.THINKING, "so")
    screen.show(Kind.ANSWER, "yes")
    screen.line(Kind.NOTE, "figures")

    shown = capsys.readouterr()
    assert shown.out == "yes\n"
    assert shown.err == "so so\nfigures\n"


def test_pieces_of_one_kind_follow_each_other(capsys):
    """An empty piece is nothing, and a line that is over is not ended again."""
    screen = Screen()
    for piece in ("a", "", "b\n", "c"):
        screen.show(Kind.ANSWER, piece)
    screen.end_line()
    screen.end_line()

    assert capsys.readouterr().out == "ab\nc\n"


def test_a_pipe_gets_every_byte_as_it_is(capsys):
    """What is readable is a question of terminals."""
    Screen().show(Kind.ANSWER, "a\x1b[2Jb\r\n")

    assert capsys.readouterr().out == "a\x1b[2Jb\r\n"


def test_a_terminal_is_never_steered_by_a_text(monkeypatch):
    """Escapes, carriage returns and turned writing are shown as signs, in every kind of text."""
    monkeypatch.setattr(sys, "stdout", Terminal())
    monkeypatch.setattr(sys, "stderr", Terminal())
    screen = Screen()
    for kind in Kind:
        screen.show(kind, "rm -rf ~\r\x1b[2Kls\x9b\u202e\n")

    shown = sys.stdout.getvalue() + sys.stderr.getvalue()
    assert shown.count("rm -rf ~␍␛[2Kls��\n") == len(Kind)


def test_ordinary_text_is_readable_as_it_is():
    """Lines, tabs and every alphabet."""
    assert readable("a\tb\nä 語 🙂") == "a\tb\nä 語 🙂"


class Person(io.StringIO):
    """stderr as a person sees it, who types when asked."""

    def __init__(self, keys: BinaryIO, typed: bytes) -> None:
        super().__init__()
        self._keys = keys
        self._typed = typed

    def write(self, text: str) -> int:
        if text.endswith("[y/N] "):
            self._keys.write(self._typed)
        return super().write(text)


@pytest.mark.parametrize(
    ("typed", "allowed"),
    [(b"y\n", True), (b" Yes\n", True), (b"\n", False), (b"yellow\n", False), (b"\x04", False)],
)
def test_only_a_yes_behind_the_question_is_one(typed, allowed, monkeypatch):
    """What was typed while the model wrote was not meant for the command that it then asks for."""
    ours, theirs = pty.openpty()
    with open(theirs) as stdin, open(ours, "wb", buffering=0) as keys:
        monkeypatch.setattr(sys, "stdin", stdin)
        monkeypatch.setattr(sys, "stdout", io.StringIO())
        monkeypatch.setattr(sys, "stderr", Person(keys, typed))
        keys.write(b"no\n" if allowed else b"yes\n")

        assert Screen().allows("run this?") == allowed
