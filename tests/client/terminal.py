"""`flashrt chat` as a process, in a terminal of its own or between pipes."""

import os
import pty
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import attrs
import trio

from tests.scripted import ScriptedEngine
from tests.source import ROOT
from tests.whole.watch import until


class ListeningEngine(ScriptedEngine):
    """Keeps the prompts that it answered, control tokens written out."""

    def __init__(self, *args, **wish) -> None:
        super().__init__(*args, **wish)
        self.prompts: list[str] = []

    def says(self, prompt: str) -> str:
        self.prompts.append(prompt)
        return super().says(prompt)


@attrs.define
class Terminal:
    """A child in a pseudo-terminal. `shown`: everything that it has written."""

    child: trio.Process
    keys: trio.lowlevel.FdStream
    shown: str = ""

    async def until(self, text: str, after: int = 0) -> None:
        """Until `text` stands on the screen, behind its first `after` characters."""
        while text not in self.shown[after:]:
            self.shown += await self._next(text)

    async def _next(self, wanted: str) -> str:
        try:
            return (await self.keys.receive_some()).decode()
        except trio.BrokenResourceError:  # how Linux says that nobody holds the other end
            raise AssertionError(f"it ended without {wanted!r}: {self.shown}") from None

    async def type(self, text: str) -> None:
        """What a person types."""
        await self.keys.send_all(text.encode())

    async def ended(self) -> int:
        """The exit status."""
        return await self.child.wait()

    async def interrupt(self, sent: signal.Signals = signal.SIGINT) -> None:
        """Ctrl-C, or another signal, once the child waits for something.

        A signal between Python's last look at its signals and the system call that waits would
        only be seen when that call is over. No person is as quick as that; a test is.
        """
        await until(lambda: self._state() == "S")
        self.child.send_signal(sent)

    def _state(self) -> str:
        """As /proc has it: R runs, S sleeps."""
        stat = Path(f"/proc/{self.child.pid}/stat").read_text()
        return stat.rpartition(")")[2].split()[0]


def command(url: str, *arguments: str, does: str = "chat") -> list[str]:
    """The command line."""
    return [sys.executable, "-m", "flashrt", does, "--url", f"{url}/v1", *arguments]


def environment() -> dict[str, str]:
    """Without settings of whoever runs the tests; a plain terminal."""
    own = {k: v for k, v in os.environ.items() if not k.startswith("FLASHRT_")}
    return {**own, "PYTHONPATH": str(ROOT), "TERM": "dumb"}


@asynccontextmanager
async def terminal(
    url: str, *arguments: str, cwd: Path = ROOT, does: str = "chat", **environ: str
) -> AsyncIterator[Terminal]:
    """`flashrt chat`, or another command, in a terminal."""
    ours, theirs = pty.openpty()
    child = await trio.lowlevel.open_process(
        command(url, *arguments, does=does),
        stdin=theirs, stdout=theirs, stderr=theirs,
        cwd=cwd, env={**environment(), **environ}, start_new_session=True,
    )  # fmt: skip
    os.close(theirs)
    async with trio.lowlevel.FdStream(ours) as keys:
        try:
            yield Terminal(child, keys)
        finally:
            child.kill()
            with trio.CancelScope(shield=True):
                await child.wait()


async def piped(
    url: str, *arguments: str, typed: str = "", cwd: Path = ROOT, does: str = "chat"
) -> subprocess.CompletedProcess[bytes]:
    """`flashrt chat`, or another command, between pipes, until it ends."""
    return await trio.run_process(
        command(url, *arguments, does=does),
        stdin=typed.encode(), capture_stdout=True, capture_stderr=True,
        check=False, cwd=cwd, env=environment(),
    )  # fmt: skip
