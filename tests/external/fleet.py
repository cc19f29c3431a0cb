"""Real worker processes behind a real HAProxy, with docs/haproxy.cfg as it is but for its ports."""

import os
import re
import shutil
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import attrs
import httpx
import trio

from tests.source import ROOT

WORKERS = ("w1", "w2", "w3")
PORTS = (8000, 8001, 8002, 8003, 8099, 8404)
"""The router, its workers, the peer that keeps its table, and its figures."""
POLL_S = 0.05
"""What other processes do can only be asked for; asking too often would slow them down."""
FLAGS = ("--dtype", "float32", "--threads", "1", "--max-seq", "8192", "--max-queue-depth", "4")


def free_ports(count: int) -> list[int]:
    """Ports that nobody has, all different."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


async def until(condition: Callable[[], Awaitable[bool]]) -> None:
    """Ask again and again; the fleet's time limit bounds it."""
    while True:
        if await condition():
            return
        await trio.sleep(POLL_S)


@attrs.define
class Worker:
    """One `flashrt serve` process, which may be ended and started again on its port."""

    name: str
    port: int
    folder: Path
    process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """Its root."""
        return f"http://127.0.0.1:{self.port}"

    def start(self, *flags: str) -> None:
        """Begin; whoever needs it waits until it is up."""
        where = ("--port", str(self.port), "--server-name", self.name)
        environment = {k: v for k, v in os.environ.items() if not k.startswith("FLASHRT_")}
        with (self.folder / f"{self.name}.log").open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "flashrt", "serve", *where, *FLAGS, *flags],
                stdout=log,
                stderr=log,
                env=environment,
                cwd=ROOT,
            )

    async def ready(self) -> None:
        """Until it says so itself."""
        async with httpx.AsyncClient(base_url=self.url) as http:

            async def is_ready() -> bool:
                assert self.process is not None
                assert self.process.poll() is None, f"{self.name} has ended; see its log"
                try:
                    return (await http.get("/health/ready")).status_code == 200
                except httpx.TransportError:
                    return False

            await until(is_ready)

    async def ended(self) -> int:
        """The process's exit status."""
        process = self.process
        assert process is not None
        return await trio.to_thread.run_sync(process.wait, abandon_on_cancel=True)


@attrs.frozen
class Fleet:
    """The router's address, its workers, and a worker beside them that is always quiet."""

    http: httpx.AsyncClient
    prometheus: str
    workers: dict[str, Worker]
    alone: Worker

    async def until_seen(self, name: str, state: str) -> None:
        """Until the router has a worker in this state: UP, NOLB (soft drain) or DOWN."""
        line = rf'haproxy_server_status{{proxy="workers",server="{name}",state="{state}"}} 1'
        async with httpx.AsyncClient() as http:

            async def is_seen() -> bool:
                return line in (await http.get(self.prometheus)).text

            await until(is_seen)


def configured(folder: Path, ports: dict[int, int]) -> None:
    """The documented files, with other ports."""
    text = (ROOT / "docs" / "haproxy.cfg").read_text()
    named = {int(port) for port in re.findall(r"127\.0\.0\.1:(\d+)", text)}
    assert named == set(ports), "docs/haproxy.cfg has other ports than this file"
    filled = re.sub(r"(127\.0\.0\.1):(\d+)", lambda m: f"{m[1]}:{ports[int(m[2])]}", text)
    (folder / "haproxy.cfg").write_text(filled)
    shutil.copy(ROOT / "docs" / "flashkey.lua", folder)


def started(haproxy: str, folder: Path) -> subprocess.Popen[bytes]:
    """The router, in the foreground."""
    return subprocess.Popen([haproxy, "-db", "-C", str(folder), "-f", "haproxy.cfg"])


@asynccontextmanager
async def fleet(haproxy: str, folder: Path, within_s: float) -> AsyncIterator[Fleet]:
    """All of it for the block, up and seen by the router; everything ends with the block."""
    *ports, spare = free_ports(len(PORTS) + 1)
    own = dict(zip(PORTS, ports, strict=True))
    configured(folder, own)
    workers = {name: Worker(name, own[8001 + i], folder) for i, name in enumerate(WORKERS)}
    alone = Worker("alone", spare, folder)
    router = started(haproxy, folder)
    try:
        with trio.fail_after(within_s):
            for worker in (*workers.values(), alone):
                worker.start()
            for worker in (*workers.values(), alone):
                await worker.ready()
            url = f"http://127.0.0.1:{own[8000]}"
            async with httpx.AsyncClient(base_url=url, timeout=60) as http:
                one = Fleet(http, f"http://127.0.0.1:{own[8404]}/metrics", workers, alone)
                for name in WORKERS:
                    await one.until_seen(name, "UP")
                yield one
    finally:
        processes = [router, *(w.process for w in (*workers.values(), alone) if w.process)]
        for process in processes:
            process.kill()
        for process in processes:
            process.wait()
