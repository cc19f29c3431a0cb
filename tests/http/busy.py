"""A real server in the middle of its work: one request in its prefill, two that wait."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import attrs
import trio

from tests.gate import GatedPerformer
from tests.whole.server import Server, fake_engine, running_server
from tests.whole.watch import MANY, health, until

KEY = "sesame"
NAMESPACE = "somebody's project"
TEXTS = ("What grows in the winter?", "What grows in the spring?", "Count. " * 60, "Next", "Last")
"""Prompts, the second an edit of the first. Neither they nor the namespace may be shown."""

CUT_STEPS = 3
"""To begin anew, and the blocks up to the second cut."""


@attrs.frozen
class Busy:
    """The server, and the gate before its engine."""

    server: Server
    gate: GatedPerformer

    @property
    def url(self) -> str:
        """The root URL."""
        return self.server.url

    async def health(self) -> dict[str, Any]:
        """What it says to a client with a key."""
        return await health(self.server)

    async def go_on(self) -> None:
        """Let everything come to its end."""
        self.gate.allow(MANY)
        await self.until_ended(len(TEXTS))

    async def until_ended(self, count: int) -> None:
        """Until so many requests have ended, and the engine waits for the next one."""

        async def ended() -> bool:
            now = await self.health()
            return now["running"] is None and now["totals"]["requests"].get("DONE") == count

        await until(ended)

    async def until_here(self, count: int) -> None:
        """Until so many requests are here."""

        async def here() -> bool:
            return len((await self.health())["activity"]["requests"]) == count

        await until(here)

    async def until_processed(self, tokens: int) -> None:
        """Until the running prefill has come that far."""

        async def there() -> bool:
            running = (await self.health())["activity"]["requests"][0]
            return running["prefill"]["processed_tokens"] >= tokens

        await until(there)


@asynccontextmanager
async def busy_server(**wish: Any) -> AsyncIterator[Busy]:
    """Two requests are over, the second of which changed what the first had asked."""
    gate = GatedPerformer(fake_engine())
    async with running_server(gate.engine, performer=gate, chunk_tokens=64, **wish) as server:
        server.http.headers["Authorization"] = f"Bearer {KEY}"
        busy = Busy(server, gate)
        gate.allow(MANY)
        for text in TEXTS[:2]:
            await server.chat(text, prompt_cache_key=NAMESPACE)
        await busy.until_ended(2)
        gate.close()
        async with trio.open_nursery() as nursery:
            for here, text in enumerate(TEXTS[2:], 1):
                nursery.start_soon(server.chat, text)
                await busy.until_here(here)
            gate.allow(CUT_STEPS)
            await busy.until_processed(128)
            yield busy
            gate.allow(MANY)
