"""What a test asks a running server again and again, until it is so."""

from collections.abc import Awaitable, Callable
from typing import Any

import trio

from tests.whole.server import Server

MANY = 100_000
"""More steps than any test takes."""


async def until(condition: Callable[[], bool | Awaitable[bool]]) -> None:
    """Ask again and again; the running_server's time limit bounds it."""
    while True:
        holds = condition()
        if holds if isinstance(holds, bool) else await holds:
            return
        await trio.sleep(0.001)


async def health(server: Server) -> dict[str, Any]:
    """What the server says of itself."""
    report: dict[str, Any] = (await server.http.get("/health")).json()
    return report


async def states(server: Server) -> dict[str, int]:
    """Finished requests by terminal state."""
    counted: dict[str, int] = (await health(server))["totals"]["requests"]
    return counted


async def until_states(server: Server, **wanted: int) -> None:
    """Until exactly these requests have ended, in these ways."""

    async def ended() -> bool:
        return await states(server) == wanted

    await until(ended)


async def leaving(server: Server) -> bool:
    """Whether the server has noticed that the running request's client is gone."""
    return bool((await health(server))["running"]["leaving"])


async def one_waits(server: Server) -> bool:
    """Whether exactly one request is queued."""
    return (await health(server))["queued"] == 1
