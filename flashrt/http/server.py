"""The listening socket and hypercorn, set up so that a client that is gone is noticed."""

import contextlib
import logging
import select
import socket
from typing import Any
from urllib.parse import unquote, urlsplit

import attrs
import h11
import hypercorn.trio
import hypercorn.trio.run
import trio
from hypercorn.config import Config
from hypercorn.events import Closed, Event
from hypercorn.protocol.h11 import H11Protocol
from hypercorn.trio.tcp_server import TCPServer
from quart_trio import QuartTrio

from flashrt.errors import CannotServe
from flashrt.http.options import HttpOptions

log = logging.getLogger("flashrt.http")

SEND_BUFFER_BYTES = 64 << 10
"""What the kernel may hold for a client that does not read: about 100 kB with the reader's side."""

HEADER_BYTES = 16 << 10


@attrs.frozen
class Address:
    """Where a server really listens; the port is known even if 0 was asked for."""

    host: str
    port: int

    @property
    def url(self) -> str:
        """The root URL, as a client on this machine writes it."""
        host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(self.host, self.host)
        return f"http://[{host}]:{self.port}" if ":" in host else f"http://{host}:{self.port}"


async def serve_app(
    app: QuartTrio,
    options: HttpOptions,
    *,
    stop: trio.Event,
    task_status: trio.TaskStatus[Address] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Serve until `stop`; then running answers get `graceful_timeout_s`. Reports the Address.

    Never cancel this task instead of setting `stop`: hypercorn then leaves sockets open. Raises
    CannotServe where the address cannot be had.
    """
    listener = _listen(options)
    host, port = listener.getsockname()[:2]
    hypercorn.trio.run.TCPServer = Connection  # type: ignore[misc, assignment]
    H11Protocol._check_protocol = _stay_with_http_1  # type: ignore[assignment]
    H11Protocol._create_stream = _take_plain_request  # type: ignore[assignment, method-assign]
    async with trio.open_nursery() as nursery:
        await nursery.start(_hypercorn, app, _config(listener, options), stop)
        task_status.started(Address(host, port))


async def _hypercorn(
    app: QuartTrio,
    config: Config,
    stop: trio.Event,
    task_status: trio.TaskStatus[list[str]] = trio.TASK_STATUS_IGNORED,
) -> None:
    await hypercorn.trio.serve(app, config, shutdown_trigger=stop.wait, task_status=task_status)


def _config(listener: socket.socket, options: HttpOptions) -> Config:
    config = Config()
    config.bind = [f"fd://{listener.detach()}"]
    config.graceful_timeout = options.graceful_timeout_s
    config.keep_alive_timeout = options.keep_alive_s
    # It limits every read, those beside a stream that is being written too.
    config.read_timeout = None
    config.h11_max_incomplete_size = HEADER_BYTES
    config.include_server_header = False
    config.accesslog = None
    config.errorlog = logging.getLogger("flashrt.http.hypercorn")
    # Where it listens is said by whoever started it.
    config.errorlog.setLevel(logging.WARNING)
    return config


def _listen(options: HttpOptions) -> socket.socket:
    """A bound socket whose options every accepted connection inherits."""
    where = f"{options.host}:{options.port} (--host, --port)"
    try:
        family, kind, _, _, address = socket.getaddrinfo(
            options.host, options.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
    except OSError as error:
        raise CannotServe(f"cannot listen on {where}: {error.strerror or error}") from None
    except UnicodeError:
        raise CannotServe(f"cannot listen on {where}: this is no host name") from None
    listener = socket.socket(family, kind, socket.IPPROTO_TCP)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER_BYTES)
        # hypercorn sends where no cancel reaches it; this bounds the wait for a client that does
        # not read, and for a host that has vanished.
        if hasattr(socket, "TCP_USER_TIMEOUT"):
            stall_ms = int(options.client_stall_s * 1000)
            listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, stall_ms)
        listener.bind(address)
    except OSError as error:
        listener.close()
        raise CannotServe(f"cannot listen on {where}: {error.strerror or error}") from None
    return listener


async def _stay_with_http_1(protocol: H11Protocol, request: object) -> None:
    """No HTTP/2 over cleartext: hypercorn has no bound for what it holds for a peer there."""


_create_stream = H11Protocol._create_stream


async def _take_plain_request(protocol: H11Protocol, request: h11.Request) -> None:
    """No websockets, of which we have none, and no target that quart cannot take apart.

    A wish to upgrade may be ignored (RFC 9110, 7.8). hypercorn's own refusal of a websocket breaks
    when the request has a body; quart's reading of a target that is no path raises.
    """
    if not _has_path(request.target):
        await protocol._send_error_response(400)
        await protocol.send(Closed())
        return
    plain = h11.Request(
        method=request.method,
        target=request.target,
        headers=[(name, value) for name, value in request.headers if name != b"upgrade"],
        http_version=request.http_version,
    )
    await _create_stream(protocol, plain)


def _has_path(target: bytes) -> bool:
    """Whether it is a path, a whole URL, or the asterisk of OPTIONS (RFC 9112, 3.2)."""
    path = unquote(target.partition(b"?")[0].decode("ascii"))
    try:
        return path == "*" or path.startswith("/") or urlsplit(path).scheme in ("http", "https")
    except ValueError:
        return False


class _Turns:
    """The order of a connection's sends. No cancel reaches the wait for a turn, nor the send.

    hypercorn has h11 write a piece, sends it, and then notes that it did. Cancelled in between, it
    takes an answer that has begun for one that has not, and h11 raises at the second beginning.
    """

    def __init__(self) -> None:
        self._lock = trio.Lock()

    async def __aenter__(self) -> None:
        with trio.CancelScope(shield=True):
            await self._lock.acquire()

    async def __aexit__(self, *_: object) -> None:
        self._lock.release()


class Connection(TCPServer):
    """One connection whose client is missed the moment it hangs up.

    hypercorn stops reading while bytes that follow a request wait for their turn, and then does not
    see the end of the stream either. This asks the kernel instead.
    """

    def __init__(self, *parts: Any) -> None:
        super().__init__(*parts)
        self.send_lock = _Turns()  # type: ignore[assignment]

    async def run(self) -> None:
        """Serve it. Whatever goes wrong on one connection is no other's concern."""
        try:
            await super().run()
        except* Exception as error:
            log.error("a connection failed", exc_info=error)

    async def protocol_send(self, event: Event) -> None:
        """Send; into a connection that is being closed at this moment, nothing."""
        try:
            await super().protocol_send(event)
        except trio.BusyResourceError:
            await self.protocol.handle(Closed())

    async def _read_data(self) -> None:
        async with trio.open_nursery() as reading:
            reading.start_soon(self._watch, reading.cancel_scope)
            await super()._read_data()
            reading.cancel_scope.cancel()
        # The connection is gone: end whatever still works for it. hypercorn's own notice to the app
        # gets lost if the watch cuts it short; and its idle timer would stay for its whole time.
        nursery = self._task_group._nursery
        assert nursery is not None, "the task group is open as long as this runs inside it"
        nursery.cancel_scope.cancel()

    async def _watch(self, reading: trio.CancelScope) -> None:
        """End the connection when the peer hangs up, wholly or for writing."""
        if not hasattr(select, "epoll"):
            return
        with contextlib.closing(select.epoll()) as hangup:
            hangup.register(self.stream.socket.fileno(), select.EPOLLRDHUP)
            await trio.lowlevel.wait_readable(hangup.fileno())
        # Ends a send that is under way as well, which no cancel would reach.
        await trio.aclose_forcefully(self.stream)
        reading.cancel()
