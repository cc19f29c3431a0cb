"""Actions of clients whose requests are wrong: each is refused in words, and that is all."""

import random
from typing import Any

from flashrt.bench.soak.answers import check_refusal
from flashrt.bench.soak.client import CHAT, COMPLETIONS, Client
from flashrt.bench.soak.talks import words
from flashrt.bench.soak.wire import Connection, Gone, request_bytes

HELLO = [{"role": "user", "content": "hello"}]
CHUNKED: dict[str, str | None] = {"Content-Length": None, "Transfer-Encoding": "chunked"}
PIECE = b"10000\r\n" + b" " * 65536 + b"\r\n"

NOT_JSON = (b"", b"{", b'{"model": "\xff"}', b"[" * 50_000, b"nonsense", b'{"messages": [}')

WRONG_FIELDS: tuple[dict[str, Any], ...] = (
    {"messages": []},
    {"messages": "hello"},
    {"messages": [{"role": "boss", "content": "x"}]},
    {"messages": HELLO, "stream": "true"},
    {"messages": HELLO, "max_tokens": 0},
    {"messages": HELLO, "temperature": 9},
    {"messages": HELLO, "n": 2},
    {"messages": HELLO, "stop": [""]},
    {"messages": HELLO, "tools": [{"type": "function", "function": {"name": "a b"}}]},
    {"messages": HELLO, "flashrt_draft_tokens": 64},
    {"messages": HELLO, "top_logprobs": 3},
    {},
)


async def bad_json(client: Client, rng: random.Random) -> None:
    """A body that cannot be read."""
    path = rng.choice((CHAT, COMPLETIONS, "/tokenize", "/detokenize"))
    await client.expect(frozenset({400}), "POST", path, rng.choice(NOT_JSON))


async def bad_field(client: Client, rng: random.Random) -> None:
    """A body with a field that cannot be honoured."""
    await client.expect(frozenset({400}), "POST", CHAT, rng.choice(WRONG_FIELDS))


async def bad_type(client: Client, rng: random.Random) -> None:
    """A body that is declared as something else."""
    headers = rng.choice(
        ({"Content-Type": "text/plain"}, {"Content-Type": None}, {"Content-Encoding": "gzip"})
    )
    await client.expect(frozenset({415}), "POST", CHAT, {"messages": HELLO}, headers=headers)


async def bad_key(client: Client, rng: random.Random) -> None:
    """No key, a wrong one, or one in a strange place."""
    headers = rng.choice(
        (
            {"Authorization": None},
            {"Authorization": "Bearer wrong"},
            {"Authorization": "Basic " + client.target.place.key},
            {"Authorization": None, "X-Api-Key": "wrong"},
        )
    )
    method, path = rng.choice((("POST", CHAT), ("GET", "/v1/models")))
    body = {"messages": HELLO} if method == "POST" else None
    await client.expect(frozenset({401}), method, path, body, headers=headers)


async def foreign(client: Client, rng: random.Random) -> None:
    """A host name that is not the server's, or somebody's web page."""
    headers = rng.choice(({"Host": "evil.example"}, {"Origin": "http://evil.example"}))
    method, path = rng.choice((("POST", CHAT), ("GET", "/health"), ("GET", "/v1/models")))
    body = {"messages": HELLO} if method == "POST" else None
    await client.expect(frozenset({403}), method, path, body, headers=headers)


async def unknown_route(client: Client, rng: random.Random) -> None:
    """A path that nobody serves, or a method that a path does not take."""
    status, method, path = rng.choice(
        (
            (404, "GET", "/v1/nowhere"),
            (404, "POST", "/v1/chat/completions/"),
            (404, "GET", "/" + words(rng, 1, 1) + "/%2e%2e/x"),
            (405, "GET", CHAT),
            (405, "DELETE", "/v1/models"),
            (405, "POST", "/health"),
        )
    )
    body = {"messages": HELLO} if method == "POST" else None
    await client.expect(frozenset({status}), method, path, body)


async def long_prompt(client: Client, rng: random.Random) -> None:
    """More tokens than the window has: refused in words by which clients compact."""
    messages = [{"role": "user", "content": "word " * (client.target.window + rng.randrange(99))}]
    await client.expect(
        frozenset({413, 400}),
        "POST",
        CHAT,
        {"messages": messages, "stream": rng.random() < 0.5},
        code="context_length_exceeded",
    )


async def large_body(client: Client, rng: random.Random) -> None:
    """A body declared as larger than any, or one that goes on and on; it never becomes whole."""
    endless = rng.random() < 0.5
    headers = CHUNKED if endless else {"Content-Length": str(1 << 40)}
    head = request_bytes(client.target.place, "POST", CHAT, b"", headers)
    connection = await Connection.open(client.target.place)
    try:
        await connection.send(head)
        for _ in range(rng.randint(17, 24) if endless else 1):
            await connection.send(PIECE)
        if endless:
            await connection.send(b"0\r\n\r\n")
        reply = await connection.reply("POST")
        client.target.tally.saw(client.name, reply.status)
        check_refusal(reply, frozenset({413, 400} if endless else {413}))
    except Gone:
        # A client that is still sending may see the connection go before it sees the answer.
        client.left()
    finally:
        await connection.leave()
