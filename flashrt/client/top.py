"""`flashrt top`: what a server is doing, redrawn in place, or once where nobody watches."""

import argparse
import os
import select
import shutil
import signal
import sys
import termios
import time
import tty
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NoReturn

from flashrt.client.board import Line, board
from flashrt.client.chat import FAILED
from flashrt.client.health import Health
from flashrt.client.options import add_server_arguments, api_key
from flashrt.client.screen import PLAIN, RED, Kind, Screen, readable
from flashrt.client.server import Server
from flashrt.errors import NoAnswer

DESCRIPTION = (
    "Show what a running server is doing: requests that wait and run, the hot session, saved "
    "states, speeds, and why prefixes broke. On a terminal it is redrawn until q or Ctrl-C; "
    "through a pipe it is shown once."
)
ANSWER_S = 5.0
"""How long the server may take to say what it is doing."""

HOW_TO_LEAVE = "q or Ctrl-C leaves"

INTERVAL_S_MIN, INTERVAL_S_MAX = 0.1, 3600.0
TERMINATED = 128 + signal.SIGTERM

# The other screen, so that what stood in the terminal is there again at the end; no cursor.
ENTER, LEAVE = "\x1b[?1049h\x1b[?25l", "\x1b[?25h\x1b[?1049l"
HOME, END_OF_LINE, BELOW = "\x1b[H", "\x1b[K", "\x1b[J"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Everything that can be typed behind `flashrt top`."""
    add_server_arguments(parser)
    parser.add_argument(
        "--interval-s",
        type=_interval,
        default=1.0,
        metavar="N",
        help="seconds between two looks [default %(default)s]",
    )
    parser.add_argument("--once", action="store_true", help="show it once, also on a terminal")


def run(asked: Mapping[str, Any]) -> int:
    """Show it; the exit status: 0, or 1 if the server does not answer. Raises CannotServe."""
    key = api_key(asked["api_key"])
    server = Server(asked["url"], key, answer_s=ANSWER_S)
    try:
        health = server.health()
        if asked["once"] or not _can_redraw():
            print(*(readable(line.text) for line in board(health, has_key=bool(key))), sep="\n")
        else:
            _watch(server, health, has_key=bool(key), interval_s=asked["interval_s"])
    except NoAnswer as error:
        Screen().line(Kind.FAULT, f"flashrt: {error}")
        return FAILED
    except KeyboardInterrupt:
        pass
    return 0


def _can_redraw() -> bool:
    """Whether a person watches, and the terminal can move its cursor."""
    is_terminal = sys.stdin.isatty() and sys.stdout.isatty()
    return is_terminal and os.environ.get("TERM", "dumb") != "dumb"


def _watch(server: Server, health: Health, *, has_key: bool, interval_s: float) -> None:
    """Until the person leaves. A server that has gone may come back."""
    note = Line(HOW_TO_LEAVE)
    with _full_screen():
        while True:
            _draw([note, *board(health, has_key=has_key)])
            if _leaves_within(interval_s):
                return
            try:
                health, note = server.health(), Line(HOW_TO_LEAVE)
            except NoAnswer as error:
                note = Line(f"the figures are from before: {error}", RED)


@contextmanager
def _full_screen() -> Iterator[None]:
    """The terminal for ourselves: keys come at once and are not shown. As it was, at the end."""
    before = termios.tcgetattr(sys.stdin)
    handler = signal.signal(signal.SIGTERM, _terminated)
    tty.setcbreak(sys.stdin)
    print(ENTER, end="", flush=True)
    try:
        yield
    finally:
        print(LEAVE, end="", flush=True)
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, before)
        signal.signal(signal.SIGTERM, handler)


def _terminated(*_: object) -> NoReturn:
    sys.exit(TERMINATED)


def _draw(lines: Iterable[Line]) -> None:
    """From the top left corner, cut to the window; what stood below is wiped."""
    columns, rows = shutil.get_terminal_size()
    shown = [_cut(line, columns) for line in list(lines)[:rows]]
    print(HOME + f"{END_OF_LINE}\n".join(shown) + END_OF_LINE + BELOW, end="", flush=True)


def _cut(line: Line, columns: int) -> str:
    text = readable(line.text)[:columns]
    return f"{line.style}{text}{PLAIN}" if line.style else text


def _leaves_within(seconds: float) -> bool:
    """Whether q is pressed, or the terminal goes, in so many seconds."""
    deadline = time.monotonic() + seconds
    while select.select([sys.stdin], [], [], max(0.0, deadline - time.monotonic()))[0]:
        keys = os.read(sys.stdin.fileno(), 64)
        if not keys or b"q" in keys.lower():
            return True
    return False


def _interval(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if INTERVAL_S_MIN <= seconds <= INTERVAL_S_MAX:
        return seconds
    raise argparse.ArgumentTypeError(
        f"{text!r} is no number of seconds from {INTERVAL_S_MIN:g} to {INTERVAL_S_MAX:g}"
    )
