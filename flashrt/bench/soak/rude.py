"""Actions of clients that misbehave on the wire: hang up, dawdle, push ahead, talk rubbish."""

import random
from collections.abc import Mapping
from typing import Any

import trio

from flashrt.bench.soak.answers import check_refusal
from flashrt.bench.soak.chats import chosen
from flashrt.bench.soak.client import CHAT, Client
from flashrt.bench.soak.talks import question, wish
from flashrt.bench.soak.wire import Connection, Fault, Gone, request_bytes

WAYS = ("close", "reset", "half")
SMALL_BUFFER_BYTES = 4096
GARBAGE_WITHIN_S = 0.3
REFUSED = frozenset({400, 401, 403, 404, 405, 408, 413, 414, 415, 431, 501, 505})
"""Statuses for bytes that are hardly a request; what does not parse gets no body."""


def asks(client: Client, rng: random.Random, **more: Any) -> dict[str, Any]:
    """A request for the next turn of a conversation, which does not become part of it."""
    talk = chosen(client, rng)
    return talk.cut(len(talk.messages)).body(
        {**wish(rng), "messages": [*talk.messages, question(rng)], **more}
    )


async def hang_up(client: Client, rng: random.Random) -> None:
    """Leave inside the request, before the answer or in it; half of them ask once more."""
    body = asks(client, rng, max_tokens=rng.randint(4, 40))
    moment = rng.choice((_inside_the_request, _before_the_answer, _inside_the_answer))
    connection = await Connection.open(client.target.place)
    try:
        await moment(client, rng, connection, body)
    finally:
        await connection.leave(rng.choice(WAYS))
    client.left()
    if rng.random() < 0.5:
        await client.ask({**body, "max_tokens": 4})


async def _inside_the_request(
    client: Client, rng: random.Random, connection: Connection, body: Mapping[str, Any]
) -> None:
    data = request_bytes(client.target.place, "POST", CHAT, body)
    await connection.send(data[: rng.randrange(1, len(data))])


async def _before_the_answer(
    client: Client, rng: random.Random, connection: Connection, body: Mapping[str, Any]
) -> None:
    client.sends(CHAT)
    await connection.send(request_bytes(client.target.place, "POST", CHAT, body))
    await trio.sleep(rng.choice((0, 0.001, 0.01, 0.1)) * rng.random())


async def _inside_the_answer(
    client: Client, rng: random.Random, connection: Connection, body: Mapping[str, Any]
) -> None:
    client.sends(CHAT)
    streamed = {**body, "stream": True}
    await connection.send(request_bytes(client.target.place, "POST", CHAT, streamed))
    status, headers = await connection.head()
    if status != 200:
        await client.read(connection, CHAT, streamed, status, headers)
        return
    client.head_came(CHAT, status)
    for _ in range(rng.randrange(6)):
        if await connection.piece() is None:
            return


async def slow_reader(client: Client, rng: random.Random) -> None:
    """A small buffer, small pieces and pauses; the answer is whole all the same."""
    body = asks(client, rng, max_tokens=rng.randint(4, 30), logprobs=True, top_logprobs=10)

    async def pause() -> None:
        await trio.sleep(0.002)

    await _read_slowly(client, body, pause, piece_bytes=512)


async def stopped_reader(client: Client, rng: random.Random) -> None:
    """Takes nothing for a while. Longer than the server has patience, the stream may break off."""
    body = asks(client, rng, max_tokens=120, logprobs=True, top_logprobs=20, stream=True)
    stall_s = client.target.stall_s
    pause_s = rng.choice((0.1 * rng.random(), stall_s * 1.5))
    pauses = iter([pause_s])

    async def pause() -> None:
        await trio.sleep(next(pauses, 0))

    try:
        await _read_slowly(client, body, pause)
    except Gone:
        if pause_s < stall_s:
            raise
        client.left()


async def _read_slowly(
    client: Client, body: Mapping[str, Any], pause: Any, piece_bytes: int = 4096
) -> None:
    connection = await Connection.open(client.target.place, receive_buffer_bytes=SMALL_BUFFER_BYTES)
    try:
        client.sends(CHAT)
        await connection.send(request_bytes(client.target.place, "POST", CHAT, body))
        status, headers = await connection.head()
        await client.read(connection, CHAT, body, status, headers, pause, piece_bytes)
    finally:
        await connection.leave()


async def pipelined(client: Client, rng: random.Random) -> None:
    """Several requests in one go, perhaps garbage behind them: answered in their order."""
    place = client.target.place
    body = asks(client, rng)
    data = request_bytes(place, "POST", CHAT, body) + request_bytes(place, "GET", "/health")
    data += request_bytes(place, "GET", "/nowhere")
    rubbish = rng.choice((b"", b"\x00\xff rubbish\r\n\r\n"))
    connection = await Connection.open(place)
    try:
        client.sends(CHAT)
        await connection.send(data + rubbish)
        await client.read(connection, CHAT, body, *await connection.head("POST"))
        health = await connection.reply()
        if health.status != 200:
            raise Fault(f"/health behind a chat request: status {health.status}")
        check_refusal(await connection.reply(), frozenset({404}))
        if rubbish:
            await _no_answer_to_rubbish(client, connection)
    finally:
        await connection.leave(rng.choice(WAYS))


async def pipelined_and_gone(client: Client, rng: random.Random) -> None:
    """Requests behind one that runs, and then nobody there to read any of it."""
    place = client.target.place
    connection = await Connection.open(place)
    try:
        for _ in range(rng.randint(2, 3)):
            client.sends(CHAT)
            body = asks(client, rng, max_tokens=30, stream=True)
            await connection.send(request_bytes(place, "POST", CHAT, body))
        await trio.sleep(0.05 * rng.random())
    finally:
        await connection.leave(rng.choice(WAYS))
    client.left()


async def garbage(client: Client, rng: random.Random) -> None:
    """Bytes that are no request: refused or ignored, never served."""
    connection = await Connection.open(client.target.place)
    try:
        await connection.send(rng.choice(GARBAGE) + rng.randbytes(rng.randrange(40)))
        await _no_answer_to_rubbish(client, connection)
    except Gone:
        client.left()
    finally:
        await connection.leave(rng.choice(("close", "reset")))


async def _no_answer_to_rubbish(client: Client, connection: Connection) -> None:
    """The server may close without a word, wait for more, or say what is wrong."""
    with trio.move_on_after(GARBAGE_WITHIN_S):
        try:
            reply = await connection.reply()
        except Gone:
            client.left()
            return
        client.target.tally.saw(client.name, reply.status)
        if reply.status not in REFUSED:
            raise Fault(f"garbage was answered with status {reply.status}: {reply.body[:200]!r}")
        if reply.body:
            check_refusal(reply, REFUSED)


GARBAGE = (
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",  # the beginning of a TLS handshake
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    b"GET / HTTP/x\r\nHost: 127.0.0.1\r\n\r\n",
    b"GET /health HTTP/1.1\r\n\r\n",  # no Host
    b"GET /health HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
    b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\nx: a\x00b\r\n\r\n",
    b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\nx: " + b"a" * 40_000,  # no end
    b"POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: -1\r\n\r\n",
    b"POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 1\r\n"
    b"Content-Length: 2\r\n\r\n",
    b"\r\n\r\n\r\n",
    b"",
)
