"""The guard around the app: every way out runs what was left for it."""

import json
from collections.abc import MutableMapping
from typing import Any

import pytest
import trio

from flashrt.http.app import make_app
from flashrt.http.guard import FinishGuard, on_exit
from flashrt.http.options import HttpOptions
from tests.http.vocabulary import HELLO, ScriptedService, asgi_scope

Message = MutableMapping[str, Any]


async def nothing(*_: object) -> Any:
    return {"type": "http.disconnect"}


async def test_exits_run_however_a_request_ends():
    """Return, error and cancel."""
    ran: list[str] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        on_exit(scope, lambda: ran.append(scope["how"]))
        if scope["how"] == "error":
            raise ValueError("a bug")
        if scope["how"] == "cancel":
            await trio.sleep_forever()

    guard = FinishGuard(app)
    await guard({"type": "http", "how": "return"}, nothing, nothing)
    with pytest.raises(ValueError, match="a bug"):
        await guard({"type": "http", "how": "error"}, nothing, nothing)
    with trio.CancelScope() as scope:
        scope.cancel()
        await guard({"type": "http", "how": "cancel"}, nothing, nothing)

    assert ran == ["return", "error", "cancel"]


async def test_the_app_hears_of_no_disconnect_once_its_last_piece_is_out():
    """Before the last piece a disconnect is passed on; after it the app waits until it returns."""
    heard: list[str] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        heard.append((await receive())["type"])
        await send({"type": "http.response.body", "body": b"", "more_body": False})
        with trio.move_on_after(0):
            heard.append((await receive())["type"])

    await FinishGuard(app)({"type": "http"}, nothing, nothing)

    assert heard == ["http.disconnect"]


async def test_an_item_is_left_though_its_body_never_began():
    """The client goes while the headers are sent: the generator never runs, nor its `finally`."""
    service = ScriptedService()
    app = make_app(service, HttpOptions())
    body = json.dumps({**HELLO, "stream": True}).encode()
    sending_headers = trio.Event()
    messages = [{"type": "http.request", "body": body, "more_body": False}]

    async def receive() -> Message:
        if messages:
            return messages.pop()
        await sending_headers.wait()
        return {"type": "http.disconnect"}

    async def send(message: Message) -> None:
        assert message["type"] == "http.response.start"
        sending_headers.set()
        await trio.sleep_forever()

    with trio.fail_after(5):
        await app(asgi_scope(), receive, send)
        await service.left()

    assert service.balance == 0
