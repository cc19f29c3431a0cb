"""A service with scripted answers behind a real server on a real socket, and raw clients."""

import json
import socket
import struct
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from typing import Any, cast

import attrs
import httpx
import trio

from flashrt.chat.deltas import Delta, FinishReason, TextDelta
from flashrt.chat.prompt import Prompt
from flashrt.chat.request import AgentRequest
from flashrt.chat.session_call import (
    AnySessionCall,
    CreateSession,
    DeleteSession,
    ForkSession,
    ListSessions,
    SessionDeleted,
    SessionPage,
    SessionReport,
)
from flashrt.errors import AnswerCancelled, FlashRTError, NotFound
from flashrt.http.app import make_app
from flashrt.http.options import HttpOptions
from flashrt.http.server import Address, serve_app
from flashrt.items import Failed, Finished, Item, Output, SessionItem, WorkItem
from flashrt.metrics.record import RequestRecord
from flashrt.policy.session_calls import SessionWork
from flashrt.policy.turn import Turn
from flashrt.stored import AnswerStore

HELLO = {"messages": [{"role": "user", "content": "hi"}]}
CHAT = "/v1/chat/completions"


@attrs.frozen
class Card:
    model_id: str = "ours"
    max_model_len: int = 4096
    created: int = 1_700_000_000


class Letters:
    """A vocabulary of single bytes."""

    def id_to_bytes(self, token_id: int) -> bytes:
        return bytes([token_id])

    def control_literal(self, token_id: int) -> str | None:
        return None


def say(item: WorkItem, *texts: str) -> None:
    """One output a text."""
    for text in texts:
        put(item, [TextDelta(text)])


def put(item: WorkItem, deltas: Iterable[Delta]) -> None:
    """One output of one token."""
    item.record.completion_tokens += 1
    item.sink.put(Output(tuple(deltas), (item.record.completion_tokens,)))


def finish(item: WorkItem, reason: FinishReason = FinishReason.STOP) -> None:
    item.sink.end(Finished(reason))


def fail(item: WorkItem, error: FlashRTError) -> None:
    item.sink.end(Failed(error))


SESSION = SessionReport(
    name="ours",
    created_at=1.0,
    used_at=2.0,
    turns=0,
    tokens=0,
    messages=0,
    hot=False,
    next_turn="rebuild",
    reusable_tokens=0,
    parent=None,
)


class ScriptedService:
    """Opens items; `script` (or the test itself) puts the answer into their sinks."""

    def __init__(self, script: Callable[[WorkItem], None] | None = None) -> None:
        self.card = Card()
        self.live = True
        self.takes = False
        self.softly = False
        self.token_texts = Letters()
        self.answers = AnswerStore()
        self.refuse_with: Exception | None = None
        self.clients: list[str] = []
        self.waiters: list[str] = []
        self.calls: list[AnySessionCall] = []
        self.cancelled: list[Item] = []
        self.epoch_s = 1_700_000_000.0
        self.balance = 0
        """Items that were opened and not yet left."""
        self._script = script
        self._opened_send, self._opened = trio.open_memory_channel[WorkItem](1000)
        self._left_send, self._left = trio.open_memory_channel[WorkItem](1000)

    async def open(self, request: AgentRequest, *, client: str, waiter: str) -> WorkItem:
        await trio.lowlevel.checkpoint()
        if self.refuse_with is not None:
            raise self.refuse_with
        self.clients.append(client)
        self.waiters.append(waiter)
        ids = (1, 2, 3)
        record = RequestRecord(
            request_id=f"r{len(self.clients)}",
            created=1_700_000_000,
            enqueued_at=0.0,
            started_at=0.0,
            prompt_ids=ids,
            cached_tokens=2,
        )
        # Nothing on this side of the sink reads the turn.
        item = WorkItem(request, Prompt.from_ids(ids), cast(Turn, None), record)
        if self._script is not None:
            self._script(item)
        self.balance += 1
        self._opened_send.send_nowait(item)
        return item

    async def tokens(self, request: AgentRequest) -> tuple[int, ...]:
        await trio.lowlevel.checkpoint()
        return tuple((request.text or "messages").encode())

    async def text(self, ids: Sequence[int]) -> str:
        await trio.lowlevel.checkpoint()
        return bytes(ids).decode(errors="replace")

    def call(self, call: AnySessionCall, *, client: str, waiter: str) -> SessionItem:
        """It has one session, "ours"; every call is carried out at once."""
        if self.refuse_with is not None:
            raise self.refuse_with
        self.calls.append(call)
        item = SessionItem(SessionWork(client, call), RequestRecord("r", 0, 0.0), waiter)
        self.balance += 1
        if not isinstance(call, CreateSession | ListSessions) and call.session != SESSION.name:
            item.sink.end(Failed(NotFound("x", param="session_id")))
            return item
        match call:
            case ListSessions() | ForkSession():
                item.answer = SessionPage((SESSION,))
            case DeleteSession():
                item.answer = SessionDeleted(SESSION.name, 1, 2)
            case _:
                item.answer = SESSION
        item.sink.end(Finished(FinishReason.STOP))
        return item

    def leave(self, item: Item) -> None:
        item.sink.leave()
        self.balance -= 1
        if isinstance(item, WorkItem):
            self._left_send.send_nowait(item)

    def cancel(self, item: Item) -> None:
        """As the real one does; the test decides at which boundary the item ends."""
        item.cancel.cancel(AnswerCancelled("x"))
        self.cancelled.append(item)

    def health(self) -> dict[str, object]:
        return {"status": "ready"}

    def activity(self) -> dict[str, object]:
        return {"requests": []}

    def metrics(self) -> bytes:
        return b"# HELP a_total b\n# TYPE a_total counter\na_total 0.0\n"

    def soft_drain(self, *, undo: bool) -> None:
        if self.refuse_with is not None:
            raise self.refuse_with
        self.softly = not undo

    def ready(self) -> tuple[int, dict[str, object]]:
        if self.softly:
            return 404, {"status": "soft_draining"}
        return (200, {"status": "ready"}) if self.takes else (503, {"status": "draining"})

    async def opened(self) -> WorkItem:
        """The next item that was opened."""
        return await self._opened.receive()

    async def left(self) -> WorkItem:
        """The next item that was left."""
        return await self._left.receive()


@attrs.frozen
class Server:
    """A running server."""

    service: ScriptedService
    address: Address
    stop: trio.Event
    stopped: trio.Event
    client: httpx.AsyncClient

    async def connect(self, *, receive_buffer: int | None = None) -> trio.SocketStream:
        """A bare connection."""
        sock = trio.socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        if receive_buffer is not None:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        await sock.connect((self.address.host, self.address.port))
        return trio.SocketStream(sock)

    async def ask(self, fields: dict[str, Any] = HELLO, path: str = CHAT) -> trio.SocketStream:
        """A bare connection on which a request was sent."""
        stream = await self.connect()
        await stream.send_all(post(fields, path))
        return stream


@asynccontextmanager
async def serving(service: ScriptedService | None = None, **options: Any) -> AsyncIterator[Server]:
    """A server for the length of a test, which may take a few seconds at most."""
    service = service or ScriptedService()
    chosen = HttpOptions(**{"port": 0, "graceful_timeout_s": 0.2, **options})
    stop, stopped = trio.Event(), trio.Event()

    async def run(task_status: trio.TaskStatus[Address]) -> None:
        await serve_app(make_app(service, chosen), chosen, stop=stop, task_status=task_status)
        stopped.set()

    with trio.fail_after(10):
        async with trio.open_nursery() as nursery:
            address = await nursery.start(run)
            async with httpx.AsyncClient(base_url=address.url, trust_env=False) as client:
                yield Server(service, address, stop, stopped, client)
            stop.set()


def post(fields: dict[str, Any] | bytes, path: str = CHAT, *headers: str) -> bytes:
    """A request as bytes."""
    body = fields if isinstance(fields, bytes) else json.dumps(fields).encode()
    lines = [
        f"POST {path} HTTP/1.1",
        "Host: localhost",
        "Content-Type: application/json",
        f"Content-Length: {len(body)}",
        *headers,
    ]
    return "\r\n".join([*lines, "", ""]).encode() + body


def asgi_scope() -> dict[str, Any]:
    """A chat request as the app sees it, for tests that stand in for hypercorn."""
    return {
        "type": "http",
        "http_version": "1.1",
        "method": "POST",
        "scheme": "http",
        "path": CHAT,
        "query_string": b"",
        "root_path": "",
        "headers": [(b"host", b"localhost"), (b"content-type", b"application/json")],
        "client": ("127.0.0.1", 1),
        "extensions": {},
    }


async def read_until(stream: trio.SocketStream, wanted: bytes) -> bytes:
    """All bytes up to and with `wanted`."""
    got = b""
    while wanted not in got:
        piece = await stream.receive_some()
        assert piece, f"the connection ended before {wanted!r} came: {got!r}"
        got += piece
    return got


async def read_all(stream: trio.SocketStream) -> bytes:
    """All bytes up to the end of the connection."""
    return b"".join([piece async for piece in stream])


async def hang_up(stream: trio.SocketStream) -> None:
    """FIN: an orderly close."""
    await stream.aclose()


async def reset(stream: trio.SocketStream) -> None:
    """RST: what the kernel of a killed client sends."""
    stream.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    await stream.aclose()


async def half_close(stream: trio.SocketStream) -> None:
    """The client says that it will send no more."""
    await stream.send_eof()


def sse(text: str) -> list[Any]:
    """The JSON values of a stream; the terminator as the string "[DONE]"."""
    payloads = [line[6:] for line in text.split("\n") if line.startswith("data: ")]
    return [p if p == "[DONE]" else json.loads(p) for p in payloads]


def whole_answer(*texts: str) -> Callable[[WorkItem], None]:
    """A script: these texts, then a clean end."""

    def script(item: WorkItem) -> None:
        say(item, *texts)
        finish(item)

    return script
