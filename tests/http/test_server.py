"""The socket and hypercorn: what upstream could change under us."""

import errno
import os
import socket
from contextlib import asynccontextmanager

import pytest
import trio
from hypercorn.app_wrappers import ASGIWrapper
from hypercorn.config import Config
from hypercorn.trio.worker_context import WorkerContext

from flashrt.errors import CannotServe
from flashrt.http.app import make_app
from flashrt.http.options import HttpOptions
from flashrt.http.server import Address, Connection, serve_app
from tests.http.vocabulary import (
    HELLO,
    ScriptedService,
    finish,
    hang_up,
    post,
    read_all,
    read_until,
    reset,
    say,
    serving,
    whole_answer,
)

STREAM = {**HELLO, "stream": True}
GET = b"GET /health HTTP/1.1\r\nHost: localhost\r\n%s\r\n"


async def test_an_idle_connection_is_closed_after_the_keep_alive_time():
    """The timer runs after a request, too."""
    async with serving(keep_alive_s=0.1) as server:
        stream = await server.connect()
        await stream.send_all(GET % b"")
        await read_until(stream, b"}")

        with trio.fail_after(1):
            assert await read_all(stream) == b""


async def test_a_connection_serves_many_requests():
    """Keep-alive, streamed answers included."""
    async with serving(ScriptedService(whole_answer("a"))) as server:
        stream = await server.connect()
        for _ in range(3):
            await stream.send_all(post(STREAM))
            await read_until(stream, b"[DONE]\n\n\r\n0\r\n\r\n")
            await stream.send_all(GET % b"")
            await read_until(stream, b'{"requests":[]}}')


async def test_a_client_that_asks_for_it_is_closed_at_once():
    """`Connection: close` is honoured."""
    async with serving() as server:
        stream = await server.connect()
        await stream.send_all(GET % b"Connection: close\r\n")

        with trio.fail_after(1):
            assert (await read_all(stream)).endswith(b'{"requests":[]}}')


async def test_a_graceful_stop_ends_with_the_last_stream():
    """A running answer is finished; then the server is gone at once, not after its time limit."""
    async with serving(graceful_timeout_s=8) as server:
        idle = await server.connect()
        stream = await server.ask(STREAM)
        item = await server.service.opened()
        await read_until(stream, b"assistant")

        server.stop.set()
        await trio.testing.wait_all_tasks_blocked()
        assert not server.stopped.is_set()
        say(item, "last words")
        finish(item)

        assert b"last words" in await read_until(stream, b"[DONE]")
        with trio.fail_after(1):
            await server.stopped.wait()
        await idle.aclose()


async def test_a_stopping_server_takes_no_new_clients():
    """The listener closes at once."""
    async with serving(graceful_timeout_s=8) as server:
        stream = await server.ask(STREAM)
        await server.service.opened()
        server.stop.set()
        await trio.testing.wait_all_tasks_blocked()

        with pytest.raises(ConnectionRefusedError):
            await server.connect()
        await stream.aclose()


async def test_an_answer_cut_by_the_stop_has_no_clean_end():
    """After the grace the connection just ends: no terminator, no final chunk; the item is left."""
    async with serving(graceful_timeout_s=0.05) as server:
        stream = await server.ask(STREAM)
        item = await server.service.opened()
        await read_until(stream, b"assistant")

        server.stop.set()

        rest = await read_all(stream)
        assert b"[DONE]" not in rest
        assert not rest.endswith(b"0\r\n\r\n")
        assert await server.service.left() is item
        await server.stopped.wait()


@pytest.mark.skipif(not hasattr(socket, "TCP_USER_TIMEOUT"), reason="Linux only")
async def test_a_client_that_does_not_read_outlives_neither_its_time_nor_the_stop():
    """Sends cannot be cancelled: the kernel gives up on the client, and the stop goes through."""
    async with (
        serving(client_stall_s=0.3, graceful_timeout_s=0.1) as server,
        await server.connect(receive_buffer=4096) as stream,
    ):
        await stream.send_all(post(STREAM))
        item = await server.service.opened()
        for _ in range(40):
            say(item, "x" * 10_000)
            await trio.testing.wait_all_tasks_blocked()

        server.stop.set()

        with trio.fail_after(3):
            assert await server.service.left() is item
            await server.stopped.wait()


async def test_http_2_without_tls_is_refused():
    """Neither prior knowledge nor an upgrade: hypercorn has no bound for what it holds there."""
    async with serving() as server:
        prior = await server.connect()
        await prior.send_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
        upgrade = await server.connect()
        await upgrade.send_all(
            GET
            % b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABk\r\n"
        )

        assert (await prior.receive_some()).startswith(b"HTTP/1.1 4")
        assert (await read_until(upgrade, b"}")).startswith(b"HTTP/1.1 200")


async def test_many_connections_leave_no_descriptors_behind():
    """The watch on each connection costs a descriptor, which is given back with it."""

    def descriptors() -> int:
        return len(os.listdir("/proc/self/fd"))

    async with serving() as server:
        await (await server.connect()).aclose()
        before = descriptors()
        for _ in range(20):
            stream = await server.connect()
            await stream.send_all(GET % b"")
            await read_until(stream, b"}")
            await stream.aclose()
        for _ in range(100):
            if descriptors() <= before:
                break
            await trio.sleep(0.01)

        assert descriptors() <= before


async def test_a_port_in_use_cannot_be_served():
    """The message names the address and the flags."""
    async with serving() as server:
        taken = HttpOptions(port=server.address.port)

        with pytest.raises(CannotServe, match=f"127.0.0.1:{taken.port} .--host, --port.*in use"):
            await serve_app(make_app(server.service, taken), taken, stop=trio.Event())


async def test_a_host_that_is_not_here_cannot_be_served():
    """A name that does not resolve, and an address of another machine."""
    for host in ("no.such.host.invalid", "192.0.2.1"):
        options = HttpOptions(host=host, port=0)

        with pytest.raises(CannotServe, match=host):
            await serve_app(make_app(ScriptedService(), options), options, stop=trio.Event())


def _has_ipv6() -> bool:
    with socket.socket(socket.AF_INET6) as probe:
        try:
            probe.bind(("::1", 0))
        except OSError as error:
            return error.errno not in (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT)
    return True


@pytest.mark.skipif(not _has_ipv6(), reason="this machine has no IPv6 loopback")
async def test_ipv6_is_served():
    """The URL has brackets."""
    async with serving(host="::1") as server:
        assert server.address.url == f"http://[::1]:{server.address.port}"
        assert (await server.client.get("/health")).status_code == 200


@pytest.mark.parametrize(
    ("host", "url"),
    [
        ("127.0.0.1", "http://127.0.0.1:80"),
        ("0.0.0.0", "http://127.0.0.1:80"),
        ("::", "http://[::1]:80"),
        ("::1", "http://[::1]:80"),
    ],
)
def test_an_address_has_a_url_that_a_client_can_use(host, url):
    """The wildcard addresses are shown as loopback."""
    assert Address(host, 80).url == url


@asynccontextmanager
async def listening(app):
    """The address of a server of any ASGI application, one that misbehaves perhaps."""
    options, stop = HttpOptions(port=0, graceful_timeout_s=0.2), trio.Event()

    async def run(task_status):
        await serve_app(app, options, stop=stop, task_status=task_status)

    with trio.fail_after(10):
        async with trio.open_nursery() as nursery:
            yield await nursery.start(run)
            stop.set()


def head(*headers):
    """The beginning of an answer."""
    return {"type": "http.response.start", "status": 200, "headers": [*headers]}


async def is_served(address):
    """Whether a fresh connection gets an answer."""
    async with await trio.open_tcp_stream(address.host, address.port) as stream:
        await stream.send_all(b"GET /well HTTP/1.1\r\nHost: localhost\r\n\r\n")
        return (await read_until(stream, b"\r\n\r\n")).startswith(b"HTTP/1.1 200")


async def to_be_served(scope, receive, send):
    """For all paths but /ill."""
    if scope["type"] == "lifespan":
        for event in ("startup", "shutdown"):
            await receive()
            await send({"type": f"lifespan.{event}.complete"})
        return
    await send(head((b"content-length", b"0")))
    await send({"type": "http.response.body"})


@pytest.mark.parametrize("leave", [reset, hang_up])
async def test_an_answer_that_begins_as_its_client_leaves_is_nobody_elses_concern(leave, caplog):
    """The cancel finds it between two notes of hypercorn's; the server goes on without a word."""
    began, begun = trio.Event(), trio.Event()

    async def app(scope, receive, send):
        if scope.get("path") != "/ill":
            await to_be_served(scope, receive, send)
            return
        try:
            began.set()
            await trio.sleep_forever()
        finally:
            begun.set()
            await send(head())

    async with listening(app) as address:
        stream = await trio.open_tcp_stream(address.host, address.port)
        # Behind a second request hypercorn does not read on, and does not see the end either.
        await stream.send_all(2 * b"GET /ill HTTP/1.1\r\nHost: localhost\r\n\r\n")
        await began.wait()
        await leave(stream)
        await begun.wait()
        assert await is_served(address)
    assert [record for record in caplog.records if record.exc_info] == []


class Altered:
    """The server's side of a connection, with some methods replaced."""

    def __init__(self, stream, **methods):
        self._stream = stream
        vars(self).update(methods)

    def __getattr__(self, name):
        return getattr(self._stream, name)


@asynccontextmanager
async def connected(**methods):
    """A client, and our side of its connection to be run, with `methods` replaced."""
    (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
    async with listener, await trio.open_tcp_stream(*listener.socket.getsockname()) as client:
        stream = Altered(await listener.accept(), **methods)
        with trio.fail_after(5):
            app = ASGIWrapper(to_be_served)
            yield client, Connection(app, Config(), WorkerContext(None), {}, stream)


async def test_a_connection_that_fails_ends_alone(caplog):
    """Whatever is raised on it is logged, and goes no further; the client sees the end."""

    async def receive_some(max_bytes):
        raise RuntimeError("a defect")

    async with connected(receive_some=receive_some) as (client, connection):
        await connection.run()
        assert await client.receive_some() == b""
    assert "a connection failed" in caplog.text
    assert "a defect" in caplog.text


async def test_an_answer_into_a_connection_that_is_being_closed_is_no_failure(caplog):
    """trio lets nobody send while the end is sent; the answer is dropped."""
    tried = trio.Event()

    async def send_all(data):
        tried.set()
        raise trio.BusyResourceError("another task is currently sending data")

    async with (
        connected(send_all=send_all) as (client, connection),
        trio.open_nursery() as nursery,
    ):
        nursery.start_soon(connection.run)
        await client.send_all(GET % b"")
        await tried.wait()
        await client.aclose()
    assert caplog.text == ""
