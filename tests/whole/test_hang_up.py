"""Clients that hang up, over real sockets: the engine is free within one step, nobody else pays."""

import json
import socket
import struct

import pytest
import trio

from tests.gate import GatedPerformer
from tests.whole.server import chat_body, fake_engine, running_server

LONG = "a long prompt that is cut several times, " * 60
MANY = 100_000


def request_bytes(text: str, **wish) -> bytes:
    """A chat request as it goes over the wire."""
    body = json.dumps(chat_body(text, **wish)).encode()
    head = (
        "POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


async def close(stream: trio.SocketStream) -> None:
    """A polite end."""
    await stream.aclose()


async def reset(stream: trio.SocketStream) -> None:
    """An abrupt one."""
    stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    await stream.aclose()


async def half_close(stream: trio.SocketStream) -> None:
    """Only the writing side; counts as leaving."""
    await stream.send_eof()


async def until(condition) -> None:
    """Ask again and again; the running_server's time limit bounds it."""
    while True:
        holds = condition()
        if holds if isinstance(holds, bool) else await holds:
            return
        await trio.sleep(0.001)


async def health(server) -> dict:
    """What the server says of itself."""
    return (await server.http.get("/health")).json()


async def states(server) -> dict[str, int]:
    """Finished requests by terminal state."""
    return (await health(server))["totals"]["requests"]


async def until_states(server, **wanted: int) -> None:
    """Until exactly these requests have ended, in these ways."""

    async def ended() -> bool:
        return await states(server) == wanted

    await until(ended)


def ids_of(answer) -> list[int]:
    """What was sampled."""
    return answer["flashrt"]["completion_token_ids"]


async def leaving(server) -> bool:
    """Whether the server has noticed that the running request's client is gone."""
    return bool((await health(server))["running"]["leaving"])


async def one_waits(server) -> bool:
    """Whether exactly one request is queued."""
    return (await health(server))["queued"] == 1


@pytest.mark.parametrize("leave", [close, reset, half_close])
@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("steps_before", [1, 2, 6], ids=["prefill", "prefill cut", "decode"])
async def test_a_client_that_leaves_frees_the_engine_within_one_step(leave, streamed, steps_before):
    """In prefill or decode: CANCELLED, nothing stays hot; what was read is kept for a retry, which
    is answered as cold."""
    gate = GatedPerformer(fake_engine())
    async with running_server(gate.engine, performer=gate, chunk_tokens=64) as server:
        leaver = await server.stream()
        await leaver.send_all(request_bytes(LONG, stream=streamed, max_tokens=200))
        gate.allow(steps_before)
        await until(lambda: len(gate.steps) == steps_before)
        await leave(leaver)
        await until(lambda: leaving(server))
        gate.allow(1)
        await until_states(server, CANCELLED=1)
        assert len(gate.steps) <= steps_before + 1
        gate.allow(MANY)
        next_ = await server.chat(LONG)
        cold = await server.chat(LONG, cache_salt="another namespace")
        assert next_["flashrt"]["prefix_action"] in ("restore", "truncate")
        assert cold["flashrt"]["prefix_action"] == "rebuild"
        assert ids_of(next_) == ids_of(cold)
        assert await states(server) == {"CANCELLED": 1, "DONE": 2}


@pytest.mark.parametrize("leave", [close, reset, half_close])
async def test_a_client_that_leaves_the_queue_never_reaches_the_engine(leave):
    """It ends while another is still being served, which is served as if nothing had happened."""
    gate = GatedPerformer(fake_engine())
    async with (
        running_server(gate.engine, performer=gate) as server,
        trio.open_nursery() as nursery,
    ):
        served = []

        async def first() -> None:
            served.append(await server.chat("first"))

        nursery.start_soon(first)
        gate.allow(1)
        await until(lambda: len(gate.steps) == 1)
        queued = await server.stream()
        await queued.send_all(request_bytes("second"))
        await until(lambda: one_waits(server))
        await leave(queued)
        await until_states(server, CANCELLED=1)
        gate.allow(MANY)
        await until(lambda: bool(served))
        alone = await server.chat("first")
        assert served[0]["choices"] == alone["choices"]


async def test_leaving_between_two_requests_of_one_connection_changes_nothing():
    """The session of the finished answer stays hot for whoever continues it."""
    async with running_server(fake_engine()) as server:
        stream = await server.stream()
        await stream.send_all(request_bytes("one"))
        head = await stream.receive_some()
        assert b"200" in head
        await stream.aclose()
        first = await server.chat("one")
        ids = first["flashrt"]["prompt_token_ids"] + first["flashrt"]["completion_token_ids"]
        more = await server.http.post(
            "/v1/completions",
            json={"model": "any", "prompt": [*ids, 7, 8, 9], "max_tokens": 2, "temperature": 0},
        )
        assert more.json()["flashrt"]["prefix_action"] == "append"
        assert more.json()["flashrt"]["cached_tokens"] == len(ids) - 1
