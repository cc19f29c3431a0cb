"""One HTTP/1.1 connection of a client that may misbehave: any bytes out, h11's events in."""

import json
import math
import socket
import struct
from collections.abc import Mapping
from typing import Any

import attrs
import h11
import trio

RECEIVE_BYTES = 64 << 10


class Gone(Exception):
    """The connection ended before the answer did."""


class Fault(Exception):
    """A guarantee that does not hold; the words say which."""


@attrs.frozen
class Place:
    """Where a server listens, and the key that lets a client in ("" for none)."""

    host: str
    port: int
    key: str = ""

    @property
    def authority(self) -> str:
        """As the Host header has it."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@attrs.frozen
class Reply:
    """A whole answer."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    def json(self) -> Any:
        """The body's value; raises Fault."""
        try:
            return json.loads(self.body)
        except ValueError:
            raise Fault(
                f"status {self.status} with a body that is not JSON: {self.body[:200]!r}"
            ) from None


def request_bytes(
    place: Place,
    method: str,
    path: str,
    body: bytes | Mapping[str, Any] | None = None,
    headers: Mapping[str, str | None] | None = None,
) -> bytes:
    """A request as it goes over the wire; a header given as None is left out."""
    sent = json.dumps(body).encode() if isinstance(body, Mapping) else body
    fields: dict[str, str | None] = {"Host": place.authority}
    if place.key:
        fields["Authorization"] = f"Bearer {place.key}"
    if sent is not None:
        fields |= {"Content-Type": "application/json", "Content-Length": str(len(sent))}
    fields |= headers or {}
    lines = [f"{name}: {value}" for name, value in fields.items() if value is not None]
    return "\r\n".join([f"{method} {path} HTTP/1.1", *lines, "", ""]).encode() + (sent or b"")


class Connection:
    """A connection, and how far the answers on it have come."""

    def __init__(self, stream: trio.SocketStream) -> None:
        self._stream = stream
        self._http = h11.Connection(h11.CLIENT)
        self._eof = False
        self.answers = 0

    @classmethod
    async def open(cls, place: Place, *, receive_buffer_bytes: int = 0) -> "Connection":
        """Connect; a small buffer makes a slow reader felt at the other end."""
        family = socket.AF_INET6 if ":" in place.host else socket.AF_INET
        sock = trio.socket.socket(family, socket.SOCK_STREAM)
        if receive_buffer_bytes:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer_bytes)
        try:
            await sock.connect((place.host, place.port))
        except BaseException:
            sock.close()
            raise
        return cls(trio.SocketStream(sock))

    async def send(self, data: bytes) -> None:
        """Raises Gone."""
        try:
            await self._stream.send_all(data)
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            raise Gone("the connection was closed while the request was sent") from None

    async def head(self, method: str = "GET") -> tuple[int, dict[str, str]]:
        """Status and headers of the next answer. Raises Gone, or Fault for what is not HTTP."""
        self._expect(method)
        event = await self._event()
        while isinstance(event, h11.InformationalResponse):
            event = await self._event()
        if not isinstance(event, h11.Response):
            raise Gone("the connection was closed without an answer")
        return event.status_code, {k.decode().lower(): v.decode() for k, v in event.headers}

    async def piece(self, max_bytes: int = RECEIVE_BYTES) -> bytes | None:
        """The next piece of the body; None at its end."""
        event = await self._event(max_bytes)
        if isinstance(event, h11.Data):
            return bytes(event.data)
        if not isinstance(event, h11.EndOfMessage):
            raise Gone("the connection was closed inside an answer")
        self.answers += 1
        return None

    async def reply(self, method: str = "GET") -> Reply:
        """The next answer, read to its end."""
        status, headers = await self.head(method)
        body = bytearray()
        while (piece := await self.piece()) is not None:
            body += piece
        return Reply(status, headers, bytes(body))

    @property
    def reusable(self) -> bool:
        """Whether another request may follow."""
        return self._http.our_state is h11.DONE and self._http.their_state is h11.DONE

    async def leave(self, how: str = "close") -> None:
        """Hang up: "close", "reset", or "half": no more is sent, and what comes is read."""
        if how == "half":
            await self._half_close()
        if how == "reset":
            linger = struct.pack("ii", 1, 0)
            self._stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        await trio.aclose_forcefully(self._stream)

    async def _half_close(self) -> None:
        try:
            await self._stream.send_eof()
            while await self._stream.receive_some(RECEIVE_BYTES):
                pass
        except trio.BrokenResourceError:
            pass

    def _expect(self, method: str) -> None:
        """Tell h11 of a request whose bytes are on their way already."""
        if self.reusable:
            self._http.start_next_cycle()
        if self._http.our_state is not h11.IDLE:
            raise Gone("the connection takes no further request")
        self._http.send(h11.Request(method=method, target="/", headers=[("Host", "any")]))
        self._http.send(h11.EndOfMessage())

    async def _event(self, max_bytes: int = RECEIVE_BYTES) -> Any:
        while True:
            try:
                event = self._http.next_event()
            except h11.RemoteProtocolError as error:
                if self._eof:
                    raise Gone("the connection was closed inside an answer") from None
                raise Fault(f"the answer is not HTTP: {error}") from None
            if event is not h11.NEED_DATA:
                return event
            self._take(await self._received(max_bytes))

    def _take(self, data: bytes) -> None:
        self._eof = not data
        self._http.receive_data(data)

    async def _received(self, max_bytes: int) -> bytes:
        try:
            return bytes(await self._stream.receive_some(max_bytes))
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            raise Gone("the connection was reset") from None


async def exchange(
    place: Place,
    method: str,
    path: str,
    body: bytes | Mapping[str, Any] | None = None,
    *,
    within_s: float = math.inf,
) -> Reply:
    """One request on a connection of its own. Raises Gone, Fault, trio.TooSlowError."""
    with trio.fail_after(within_s):
        connection = await Connection.open(place)
        try:
            await connection.send(request_bytes(place, method, path, body))
            return await connection.reply(method)
        finally:
            await connection.leave()
