"""Clients that hang up: noticed at once, wherever their request is, and nobody else pays."""

import pytest
import trio

from flashrt.items import WorkItem
from tests.http.vocabulary import (
    CHAT,
    HELLO,
    ScriptedService,
    Server,
    finish,
    half_close,
    hang_up,
    post,
    read_until,
    reset,
    say,
    serving,
    whole_answer,
)

STREAM = {**HELLO, "stream": True}
WAYS_OUT = [hang_up, reset, half_close]
STRAY = [b"", b"\r\n", b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"]
AT_ONCE_S = 0.5
"""Far less than any timeout or heartbeat of these tests."""


async def left_at_once(server: Server, item: WorkItem) -> None:
    with trio.fail_after(AT_ONCE_S):
        assert await server.service.left() is item


@pytest.mark.parametrize("stray", STRAY, ids=["", "crlf", "pipelined"])
@pytest.mark.parametrize("way_out", WAYS_OUT)
@pytest.mark.parametrize("fields", [HELLO, STREAM], ids=["buffered", "streamed"])
async def test_a_client_that_leaves_while_nothing_comes_is_missed(fields, way_out, stray):
    """Queued or in prefill: FIN, RST and half-close, also with bytes after the request."""
    async with serving() as server:
        stream = await server.ask(fields)
        item = await server.service.opened()
        await stream.send_all(stray)

        await way_out(stream)

        await left_at_once(server, item)


@pytest.mark.parametrize("stray", STRAY, ids=["", "crlf", "pipelined"])
@pytest.mark.parametrize("way_out", WAYS_OUT)
async def test_a_client_that_leaves_between_two_pieces_is_missed(way_out, stray):
    """In decode: the same, after some of the answer was read."""
    async with serving() as server:
        stream = await server.ask(STREAM)
        item = await server.service.opened()
        say(item, "one")
        await read_until(stream, b"one")
        await stream.send_all(stray)

        await way_out(stream)

        await left_at_once(server, item)


@pytest.mark.parametrize("way_out", WAYS_OUT)
async def test_a_client_that_leaves_with_the_answer_unread_is_missed(way_out):
    """The server is blocked in a send that no cancel reaches; the hang-up still ends it."""
    async with serving() as server, await server.connect(receive_buffer=4096) as stream:
        await stream.send_all(post(STREAM))
        item = await server.service.opened()
        for _ in range(40):
            say(item, "x" * 10_000)
            await trio.testing.wait_all_tasks_blocked()

        await way_out(stream)

        await left_at_once(server, item)


async def test_a_pipelined_client_is_found_by_the_heartbeat(monkeypatch):
    """Where the kernel cannot be asked, failing heartbeats find it: two of them at most."""
    monkeypatch.setattr("flashrt.http.server.select", object())
    async with serving(heartbeat_s=0.05) as server:
        stream = await server.ask(STREAM)
        item = await server.service.opened()
        await stream.send_all(b"\r\n")

        await stream.aclose()

        await left_at_once(server, item)


async def test_a_client_that_leaves_between_two_requests_leaves_nothing_behind():
    """After its answer a connection may go at any moment; the next client is served."""
    async with serving(ScriptedService(whole_answer("a")), keep_alive_s=60) as server:
        for way_out in WAYS_OUT:
            stream = await server.ask(HELLO)
            item = await server.service.opened()
            await read_until(stream, b"}}")
            await left_at_once(server, item)
            await way_out(stream)

        assert (await server.client.post(CHAT, json=HELLO)).status_code == 200
        await server.client.aclose()
        server.stop.set()
        with trio.fail_after(AT_ONCE_S):
            await server.stopped.wait()


async def test_a_client_that_leaves_changes_nothing_for_another():
    """Two streams; one hangs up; the other gets its whole answer."""
    async with serving() as server:
        leaving, staying = await server.ask(STREAM), await server.ask(STREAM)
        first, second = await server.service.opened(), await server.service.opened()
        await read_until(leaving, b"assistant")
        await read_until(staying, b"assistant")

        await leaving.aclose()
        gone = await server.service.left()
        other = second if gone is first else first
        say(other, "whole")
        finish(other)

        assert b"whole" in await read_until(staying, b"[DONE]")


async def test_a_client_that_leaves_before_the_first_piece_is_written_is_missed():
    """However little of a request has run, its item is left: a hundred clients that go at once."""
    async with serving() as server:
        for way_out in [hang_up, reset] * 50:
            stream = await server.ask(STREAM)
            await way_out(stream)
        answer = await server.client.get("/health")
        while server.service.balance:
            await server.service.left()

    assert answer.status_code == 200


async def test_an_item_is_left_exactly_once_when_all_goes_well():
    """A finished answer is left too, so the service may forget it."""
    async with serving(ScriptedService(whole_answer("a"))) as server:
        for fields in (HELLO, STREAM):
            await server.client.post(CHAT, json=fields)
            await server.service.left()

        assert server.service.balance == 0
