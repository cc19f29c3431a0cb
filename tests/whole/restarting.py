"""A server that is stopped by SIGTERM and started anew before every request: another engine,
another policy, and one directory that outlives them."""

import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import attrs
import httpx
import trio

from flashrt.engine.protocol import Engine
from flashrt.http.server import Address
from flashrt.serve import serve
from flashrt.settings import load
from tests.whole.server import VOICE, Server
from tests.whole.talk import demo_engine

TWO_CAPSULES_MB = 4
"""Two states of some 300 tokens, and the rows that they share."""


@asynccontextmanager
async def stopped_by_sigterm(engine: Engine, **wish: Any) -> AsyncIterator[Server]:
    """Serve `engine` for the block, and let it park what it has at the end."""
    flags = {"port": 0, "graceful_timeout_s": 20, **wish}
    settings = load({name: str(value) for name, value in flags.items()}, environ={})
    ended = []

    async def run(task_status: trio.TaskStatus[Address]) -> None:
        ended.append(await serve(settings, VOICE, engine, task_status=task_status))

    with trio.fail_after(60):
        async with trio.open_nursery() as nursery:
            address = await nursery.start(run)
            client = partial(httpx.AsyncClient, base_url=address.url, timeout=60, verify=False)
            async with client() as http:
                yield Server(address, http)
            os.kill(os.getpid(), signal.SIGTERM)
    assert ended == [0]


@attrs.define
class Restarting:
    """As `Server`, for conversations. `wish`: settings beside the directory and its tiers."""

    directory: Path
    dtype: str = "float32"
    max_seq: int = 4096
    wish: dict[str, Any] = attrs.field(factory=dict)
    capsules: list[dict[str, Any]] = attrs.field(factory=list)

    @asynccontextmanager
    async def up(self) -> AsyncIterator[Server]:
        """One life of the server."""
        tiers = {
            "capsule_budget_mb": TWO_CAPSULES_MB,
            "host_capsule_budget_mb": 6,
            "disk_capsule_dir": self.directory,
            "chunk_tokens": 128,
        }
        engine = demo_engine(self.dtype, self.max_seq)
        async with stopped_by_sigterm(engine, **{**tiers, **self.wish}) as server:
            yield server
            self.capsules.append((await server.http.get("/health")).json()["capsules"])

    async def chat(self, text: str = "hello", **wish: Any) -> dict[str, Any]:
        """One answer of a server that was started for it."""
        async with self.up() as server:
            return await server.chat(text, **wish)

    async def post(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        """A call of a server that was started for it."""
        async with self.up() as server:
            answer = await server.http.post(path, json=body)
            assert answer.is_success, answer.text
            found: dict[str, Any] = answer.json()
            return found
