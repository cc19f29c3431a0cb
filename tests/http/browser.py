"""Headless Chromium over its debugging pipe: a page as a person sees it. pip cannot install it."""

import json
import os
import shutil
import signal
import subprocess
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio

NAMES = ("chromium", "chromium-browser", "google-chrome")
FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run"),
    # Whatever is asked for on the network is then the page's own doing.
    *("--disable-background-networking", "--disable-component-update", "--no-proxy-server"),
    "--remote-debugging-pipe",
)
ONTO_THE_PIPES = 'exec "$@" 3</dev/fd/{} 4>/dev/fd/{}'


def chromium() -> str:
    """The program; in CI a missing one is a failure, elsewhere a skip."""
    found = next(filter(None, map(shutil.which, NAMES)), None)
    if found is not None:
        return found
    if os.environ.get("CI"):
        pytest.fail("CI must install chromium first")
    return pytest.skip("missing here: chromium")


@attrs.define
class Tab:
    """One tab. `events`: what it has told unasked, as (method, parameters)."""

    _commands: trio.lowlevel.FdStream
    _answers: trio.lowlevel.FdStream
    events: list[tuple[str, dict[str, Any]]] = attrs.field(factory=list)
    _session: str | None = None
    _sent: int = 0
    _read: bytes = b""

    async def tell(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Send one command of the DevTools protocol; what it gives."""
        self._sent += 1
        command = {"id": self._sent, "method": method, "params": parameters}
        if self._session is not None:
            command["sessionId"] = self._session
        await self._commands.send_all(json.dumps(command).encode() + b"\0")
        while True:
            message = await self._message()
            if message.get("id") == self._sent:
                assert "error" not in message, message["error"]
                return message["result"]
            self.events.append((message.get("method", ""), message.get("params", {})))

    async def attach(self) -> None:
        """From here on commands are for the page."""
        target = await self.tell("Target.createTarget", url="about:blank")
        attached = await self.tell("Target.attachToTarget", **target, flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            await self.tell(f"{domain}.enable")

    async def open(self, url: str) -> None:
        """Go there."""
        await self.tell("Page.navigate", url=url)

    async def evaluate(self, script: str) -> Any:
        """The value of an expression in the page, or what it promises."""
        answer = await self.tell(
            "Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True
        )
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    async def until(self, script: str) -> Any:
        """Ask once a frame until the expression is true; the test's time limit bounds it."""
        while not (value := await self.evaluate(script)):
            await self.evaluate("new Promise(requestAnimationFrame)")
        return value

    async def text(self, selector: str) -> str:
        """What a person reads in an element."""
        return await self.evaluate(f"document.querySelector({selector!r}).innerText")

    async def look(self, *, width: int, scheme: str = "light") -> None:
        """How wide the window is, and which colours the person prefers."""
        size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 600}
        await self.tell("Emulation.setDeviceMetricsOverride", **size)
        preferred = {"name": "prefers-color-scheme", "value": scheme}
        await self.tell("Emulation.setEmulatedMedia", features=[preferred])

    def told(self, method: str) -> list[dict[str, Any]]:
        """The parameters of all events of one kind."""
        return [parameters for name, parameters in self.events if name == method]

    async def _message(self) -> dict[str, Any]:
        while b"\0" not in self._read:
            self._read += await self._answers.receive_some() or b"{}\0"
        message, _, self._read = self._read.partition(b"\0")
        return json.loads(message)


@asynccontextmanager
async def browser(profile: Path, *flags: str) -> AsyncIterator[Tab]:
    """A fresh browser with one tab; `profile`: an empty folder."""
    program = chromium()
    theirs_in, ours_out = os.pipe()
    ours_in, theirs_out = os.pipe()
    async with trio.lowlevel.FdStream(ours_out) as out, trio.lowlevel.FdStream(ours_in) as back:
        child = await _started(program, profile, flags, (theirs_in, theirs_out))
        try:
            tab = Tab(out, back)
            await tab.attach()
            yield tab
        finally:
            os.killpg(child.pid, signal.SIGKILL)  # its renderers as well
            with trio.CancelScope(shield=True):
                await child.wait()


async def _started(
    program: str, profile: Path, flags: Sequence[str], pipes: tuple[int, int]
) -> trio.Process:
    command = [program, *FLAGS, f"--user-data-dir={profile}", *flags]
    child = await trio.lowlevel.open_process(
        ["sh", "-c", ONTO_THE_PIPES.format(*pipes), "sh", *command],
        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        pass_fds=pipes, start_new_session=True,
    )  # fmt: skip
    for pipe in pipes:
        os.close(pipe)
    return child
