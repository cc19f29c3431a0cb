"""A server process of our own: started on the demo checkpoint, watched by /proc, stopped."""

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import IO

import attrs
import trio

from flashrt.bench.soak.wire import Fault, Place

START_WITHIN_S = 120
STOP_WITHIN_S = 60
SETTLE_WITHIN_S = 20
"""A helper thread that idles lives for 10 s."""

REST_READINGS = 5

SERVE = ("flashrt", "serve")

MIB = 1 << 20
RSS_FROM_ACTION = 2000
GROWTH_MAX_BYTES = 20 * MIB

FLAGS = ("--port", "0", "--dtype", "float32", "--max-seq", "2048", "--log-level", "warning")
UNDER_TEST = (
    *FLAGS,
    *("--chunk-tokens", "128", "--capsule-budget-mb", "24", "--max-body-mb", "1"),
    *("--max-queue-depth", "6", "--heartbeat-s", "0.5", "--client-stall-s", "2"),
)
"""Small limits, so that all of them are met: in the queue, in the store, in bodies and patience."""

STALL_S = 2.0

FOR_REFERENCE = (*FLAGS, "--capsule-budget-mb", "0", "--draft-tokens-max", "0", "--threads", "1")


@attrs.frozen
class Usage:
    """What a process holds."""

    descriptors: int
    threads: int
    rss_bytes: int


def leftovers(start: Usage, end: Usage) -> list[str]:
    """What is held at the end and was not at the start. Memory is another matter: see `growth`."""
    return [
        f"{now} {name} at the end, {then} at the start"
        for name, now, then in (
            ("descriptors", end.descriptors, start.descriptors),
            ("threads", end.threads, start.threads),
        )
        if now > then
    ]


def growth(early: Usage, late: Usage) -> list[str]:
    """Whether the process still grows once all of its caches are full."""
    grown = late.rss_bytes - early.rss_bytes
    if grown <= GROWTH_MAX_BYTES:
        return []
    return [f"{grown / MIB:.1f} MiB more than after action {RSS_FROM_ACTION}"]


@attrs.frozen
class ServerProcess:
    """A running `flashrt serve`. `log`: where its standard error goes."""

    process: trio.Process
    place: Place
    log: IO[bytes]

    def usage(self) -> Usage:
        """As /proc has it now."""
        proc = Path("/proc", str(self.process.pid))
        pages = int((proc / "statm").read_text().split()[1])
        return Usage(
            descriptors=len(os.listdir(proc / "fd")),
            threads=len(os.listdir(proc / "task")),
            rss_bytes=pages * os.sysconf("SC_PAGE_SIZE"),
        )

    async def at_rest(self) -> Usage:
        """The least of a few readings: the ends of connections are noticed one by one."""
        usages = []
        for _ in range(REST_READINGS):
            await trio.sleep(0.05)
            usages.append(self.usage())
        return min(usages, key=lambda usage: (usage.descriptors, usage.threads))

    async def settled(self, start: Usage) -> Usage:
        """The usage once it is no more than at the start; the last one seen, if it stays above."""
        usage = self.usage()
        with trio.move_on_after(SETTLE_WITHIN_S):
            while usage.descriptors > start.descriptors or usage.threads > start.threads:
                await trio.sleep(0.1)
                usage = self.usage()
        return usage

    async def stop(self) -> int:
        """The exit status of a polite stop. Raises Fault if it does not end in time."""
        self.process.terminate()
        with trio.move_on_after(STOP_WITHIN_S):
            return await self.process.wait()
        raise Fault(f"the server does not stop within {STOP_WITHIN_S} s of SIGTERM")

    @property
    def dead(self) -> bool:
        """Whether it has ended by itself."""
        return self.process.returncode is not None

    def tracebacks(self) -> list[str]:
        """The last line of each traceback in the log; those of groups are indented."""
        self.log.seek(0)
        text = self.log.read().decode(errors="replace")
        found = re.findall(r"^[ |]*([A-Za-z_][\w.]*(?:Error|Exception)\b.*)$", text, re.MULTILINE)
        return list(found or ["Traceback"] * text.count("Traceback (most recent call last)"))


@asynccontextmanager
async def server_process(
    flags: Sequence[str],
    key: str = "",
    log_file: Path | None = None,
    command: Sequence[str] = SERVE,
    start_within_s: float = START_WITHIN_S,
) -> AsyncIterator[ServerProcess]:
    """Serve the demo checkpoint for the block; `key`: the API key that it asks for, "" for none.

    `log_file`: where its standard error is kept, if it should be. `command`: another module that
    serves, and says where as `flashrt serve` does.
    """
    environment = {k: v for k, v in os.environ.items() if not k.startswith("FLASHRT_")}
    if key:
        environment["FLASHRT_API_KEY"] = key
    with tempfile.TemporaryFile() if log_file is None else log_file.open("wb+") as log:
        process = await trio.lowlevel.open_process(
            [sys.executable, "-m", *command, *flags],
            stdout=subprocess.PIPE,
            stderr=log,
            env=environment,
        )
        try:
            port = await _port(process, start_within_s)
            yield ServerProcess(process, Place("127.0.0.1", port, key), log)
        finally:
            if process.returncode is None:
                process.kill()
            with trio.CancelScope(shield=True):
                await process.wait()
                if process.stdout is not None:
                    await process.stdout.aclose()


async def _port(process: trio.Process, within_s: float) -> int:
    """What the server says when it listens."""
    assert process.stdout is not None, "it was opened with a pipe"
    said = b""
    with trio.fail_after(within_s):
        async for piece in process.stdout:
            said += piece
            found = re.search(rb"clients .*http://127\.0\.0\.1:(\d+)", said)
            if found:
                return int(found[1])
    raise Fault(f"the server does not start; it said {said!r}")
