"""A program in a terminal of its own: tmux draws it, types, and reads the screen."""

import os
import shutil
import subprocess
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import attrs
import pytest
import trio

from tests.external.fleet import until
from tests.external.runner import Place

RETYPE_S = 2.0
"""Longer than a screen takes to show what was typed."""


@attrs.frozen
class Screen:
    """One terminal, by the name of its private tmux server."""

    name: str

    def start(self, script: str, folder: Path, environment: Mapping[str, str]) -> None:
        """Run a shell script in it."""
        command = self._command("new-session", "-d", "-x", "140", "-y", "45", "bash", "-uc", script)
        subprocess.run(command, cwd=folder, env=environment, check=True)

    def shown(self) -> str:
        """The screen, with what has scrolled away above it; nothing, if the program is over."""
        command = self._command("capture-pane", "-p", "-S", "-500")
        return subprocess.run(command, capture_output=True, text=True, check=False).stdout

    def press(self, *keys: str) -> None:
        """Press keys, by tmux's names for them."""
        subprocess.run(self._command("send-keys", *keys), check=True)

    async def until_shown(self, text: str, times: int = 1) -> None:
        """Until the text stands there so many times."""

        async def stands() -> bool:
            return self.shown().count(text) >= times

        await until(stands)

    async def enter(self, text: str) -> None:
        """Type a line, and the Enter key once it stands there.

        A program that has just drawn its first screen may lose a key; then all is typed anew.
        """
        seen, stands = self.shown().count(text), False
        while not stands:
            self.press("C-u")
            self.press("-l", text)
            with trio.move_on_after(RETYPE_S):
                await self.until_shown(text, seen + 1)
                stands = True
        self.press("Enter")

    def end(self) -> None:
        """End the program with its terminal."""
        subprocess.run(self._command("kill-server"), capture_output=True, check=False)

    def _command(self, *words: str) -> list[str]:
        return ["tmux", "-L", self.name, "-f", os.devnull, *words]


@contextmanager
def screen(place: Place, script: str) -> Iterator[Screen]:
    """A terminal with a shell script for the block; prints the screen if the block fails."""
    if shutil.which("tmux") is None:
        if os.environ.get("CI"):
            pytest.fail("CI must install it first: tmux")
        pytest.skip("missing here: tmux")
    environment = place.environment()
    del environment["TERM"], environment["NO_COLOR"]
    here = Screen(f"flashrt-{uuid.uuid4().hex[:12]}")
    here.start(script, place.project, environment)
    try:
        yield here
    except BaseException:
        print(here.shown())
        raise
    finally:
        here.end()
