"""An ASGI wrapper that gives every request exactly one way out."""

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

import trio

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

_EXITS = "flashrt.exits"


def on_exit(scope: Any, leave: Callable[[], None]) -> None:
    """Have `leave` called when the request of this ASGI scope is over, however it ends."""
    scope[_EXITS].append(leave)


class FinishGuard:
    """Runs the callbacks left by `on_exit` however a request ends, and lets it end properly.

    The callbacks are run here, not in the body's generator: a client that leaves between the
    handler's return and the body's first piece leaves a generator that never ran, whose `finally`
    never runs either.

    hypercorn announces the end of a response to the app as a disconnect, while the app's own task
    is still busy recycling the connection; quart-trio answers a disconnect by cancelling that task.
    Keep-alive timers, `Connection: close` and graceful stops all break. So once the last piece of a
    body is on its way, the app hears of no disconnect.
    """

    def __init__(self, app: Any) -> None:
        self._app = app

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        exits: list[Callable[[], None]] = []
        scope[_EXITS] = exits
        finished = False

        async def send_noting_end(message: Message) -> None:
            nonlocal finished
            if message["type"] == "http.response.body" and not message.get("more_body", False):
                finished = True
            await send(message)

        async def receive_until_end() -> Message:
            message = await receive()
            if finished and message["type"] == "http.disconnect":
                await trio.sleep_forever()
            return message

        try:
            await self._app(scope, receive_until_end, send_noting_end)
        finally:
            for leave in exits:
                leave()
