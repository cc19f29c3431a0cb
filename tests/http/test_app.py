"""Routes and the answers to bad requests; the server goes on after each of them."""

import contextlib
import json
import tracemalloc

import pytest
import trio

from flashrt.errors import BadRequest, PromptTooLong, QueueFull, Unavailable
from tests.http.vocabulary import (
    CHAT,
    HELLO,
    ScriptedService,
    post,
    read_until,
    serving,
    whole_answer,
)


async def test_health_and_readiness_are_the_services_words():
    """/health is 200 while the engine lives and 503 when it is dead; /health/ready is its own."""
    async with serving() as server:
        alive = await server.client.get("/health")
        ready = await server.client.get("/health/ready")
        server.service.live = False
        dead = await server.client.get("/health")

    assert (alive.status_code, alive.json()) == (
        200,
        {"status": "ready", "activity": {"requests": []}},
    )
    assert (ready.status_code, ready.json()) == (503, {"status": "draining"})
    assert dead.status_code == 503


async def test_models_are_listed_and_found():
    """The list and the single entry; any name is found unless names are strict."""
    async with serving() as server:
        listed = (await server.client.get("/v1/models")).json()
        ours = (await server.client.get("/v1/models/ours")).json()
        other = await server.client.get("/v1/models/org/other")

    assert listed["data"] == [ours]
    assert (ours["id"], ours["max_model_len"]) == ("ours", 4096)
    assert other.status_code == 200


async def test_a_strict_server_knows_only_its_own_name():
    """Under strict names another one is 404 model_not_found, for lookups and for answers."""
    service = ScriptedService(whole_answer("a"))
    async with serving(service, strict_model_name=True) as server:
        lookup = await server.client.get("/v1/models/org/other")
        refused = await server.client.post(CHAT, json={**HELLO, "model": "other"})
        served = await server.client.post(CHAT, json={**HELLO, "model": "ours"})

    assert (lookup.status_code, refused.status_code, served.status_code) == (404, 404, 200)
    assert refused.json()["error"]["code"] == "model_not_found"


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (BadRequest("x", param="messages[0]"), 400),
        (PromptTooLong("x", prompt_tokens=9, max_tokens=7), 413),
        (QueueFull("x", retry_after_s=2), 429),
        (Unavailable("x", retry_after_s=5), 503),
        (ValueError("secret"), 500),
    ],
)
@pytest.mark.parametrize("stream", [False, True])
async def test_what_the_service_refuses_has_its_status(error, status, stream):
    """Before the headers every refusal is a plain status, streamed or not, with Retry-After."""
    async with serving() as server:
        server.service.refuse_with = error
        answer = await server.client.post(CHAT, json={**HELLO, "stream": stream})

    assert answer.status_code == status
    assert answer.headers["content-type"] == "application/json"
    assert set(answer.json()["error"]) == {"message", "type", "param", "code"}
    assert "secret" not in answer.text
    retry_after = getattr(error, "retry_after_s", None)
    assert answer.headers.get("retry-after") == (retry_after and str(retry_after))


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/nothing", 404),
        ("GET", "/v1/models/", 404),
        ("GET", CHAT, 405),
        ("DELETE", "/v1/models", 405),
        ("POST", "/health", 405),
    ],
)
async def test_a_wrong_route_is_an_error_object(method, path, status):
    """404 and 405 have the same shape as every other error."""
    async with serving() as server:
        answer = await server.client.request(method, path)

    assert answer.status_code == status
    assert answer.json()["error"]["type"] == "invalid_request_error"
    assert ("allow" in answer.headers) == (status == 405)


async def test_a_path_is_taken_as_it_is():
    """No redirects: clients that follow one repeat a POST, or do not."""
    async with serving() as server:
        stream = await server.connect()
        await stream.send_all(b"GET //v1//models HTTP/1.1\r\nHost: localhost\r\n\r\n")

        got = await read_until(stream, b"}}")

    assert got.startswith(b"HTTP/1.1 404")


BAD_BODIES = [
    b"",
    b"{",
    b"[1]",
    b'{"messages": []}',
    b'{"messages": "hi"}',
    b'{"messages": [{"role": "user", "content": "\xff\xfe"}]}',
    b'{"messages": [{"role": "user", "content": "x"}], "stream": "true"}',
    b"\x1f\x8b\x08\x00\x00",
    b"[" * 200_000,
    b'{"messages": ' + b"[" * 200_000,
]


@pytest.mark.parametrize("body", BAD_BODIES, ids=range(len(BAD_BODIES)))
async def test_a_bad_body_is_400_and_the_server_goes_on(body):
    """Not JSON, not UTF-8, too deep, wrong types: always 400 with an error object."""
    async with serving(ScriptedService(whole_answer("a"))) as server:
        answer = await server.client.post(
            CHAT, content=body, headers={"Content-Type": "application/json"}
        )
        after = await server.client.post(CHAT, json=HELLO)

    assert answer.status_code == 400
    assert answer.json()["error"]["type"] == "invalid_request_error"
    assert after.status_code == 200


@pytest.mark.parametrize(
    "headers",
    [
        {"Content-Type": "text/plain"},
        {"Content-Type": "application/x-www-form-urlencoded"},
        {},
        {"Content-Type": "application/json", "Content-Encoding": "gzip"},
    ],
)
async def test_a_body_that_is_not_declared_as_plain_json_is_415(headers):
    """No web page can drive the server with a simple form, and nothing is unpacked."""
    async with serving() as server:
        answer = await server.client.post(CHAT, content=b"{}", headers=headers)

    assert answer.status_code == 415
    assert answer.json()["error"]["code"] == "unsupported_media_type"


@pytest.mark.parametrize("status", [413, 400])
async def test_a_prompt_that_is_too_long_has_the_status_that_was_asked_for(status):
    """The words and the code, by which clients know it, are the same."""
    async with serving(overflow_status=status) as server:
        server.service.refuse_with = PromptTooLong(
            "This model's maximum context length is 9", prompt_tokens=9, max_tokens=7
        )
        answer = await server.client.post(CHAT, json=HELLO)
    assert answer.status_code == status
    assert answer.json()["error"]["code"] == "context_length_exceeded"


async def test_a_declared_length_over_the_limit_is_413_before_it_is_read():
    """A 50 MB body is refused at its header, and the next client is served."""
    async with serving(ScriptedService(whole_answer("a"))) as server:
        stream = await server.connect()
        head = post(b"").replace(b"Content-Length: 0", b"Content-Length: 50000000")
        await stream.send_all(head + b"{" * 1000)
        got = await read_until(stream, b"}}")
        after = await server.client.post(CHAT, json=HELLO)

    assert got.startswith(b"HTTP/1.1 413")
    assert b"--max-body-mb" in got
    assert after.status_code == 200


async def test_a_50_mb_body_of_an_ordinary_client_is_413():
    """httpx, which sends the whole body first, still gets the answer."""
    async with serving() as server:
        answer = await server.client.post(
            CHAT, content=b" " * 50_000_000, headers={"Content-Type": "application/json"}
        )

    assert answer.status_code == 413
    assert answer.json()["error"]["code"] == "body_too_large"


async def test_a_chunked_body_over_the_limit_stays_below_twice_the_limit_in_memory():
    """A body without a declared length is counted while it is read, never collected first."""
    limit = 1 << 20
    piece = b"%x\r\n%s\r\n" % (65536, b" " * 65536)
    async with serving(max_body_bytes=limit) as server:
        stream = await server.connect()
        head = post(b"").replace(b"Content-Length: 0", b"Transfer-Encoding: chunked")
        tracemalloc.start()
        try:
            await stream.send_all(head)
            with contextlib.suppress(trio.BrokenResourceError):
                for _ in range(64 * limit // 65536):
                    await stream.send_all(piece)
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        got = await read_until(stream, b"}}")

    assert got.startswith(b"HTTP/1.1 413")
    assert limit < peak < 2 * limit


async def test_a_body_that_does_not_arrive_is_408():
    """A body may take only so long, however slowly it dribbles."""
    async with serving(body_timeout_s=0.05) as server:
        stream = await server.connect()
        await stream.send_all(post(b"{}")[:-1])

        got = await read_until(stream, b"}}")

    assert got.startswith(b"HTTP/1.1 408")
    assert json.loads(got[got.index(b"{") :])["error"]["code"] == "request_timeout"


async def test_the_servers_name_is_on_every_answer():
    """Behind a router, every answer says which worker gave it, errors too."""
    async with serving(server_name="w3") as server:
        names = [
            (await server.client.get(path)).headers["x-flashrt-worker"]
            for path in ("/health", "/nothing")
        ]

    assert names == ["w3", "w3"]


async def test_a_session_in_the_headers_is_a_hint():
    """It reaches the request; whoever sends none is served as well."""
    async with serving(ScriptedService(whole_answer("a"))) as server:
        sessions = []
        for headers in ({"X-Session-Affinity": "ses_1"}, {}):
            await server.client.post(CHAT, json=HELLO, headers=headers)
            sessions.append((await server.service.opened()).request.hints.session)

    assert sessions == ["ses_1", None]


@pytest.mark.parametrize("wish", [-1, 1.5, "7"])
@pytest.mark.parametrize(
    ("path", "body"), [(CHAT, HELLO), ("/v1/completions", {"prompt": "a"})], ids=["chat", "text"]
)
async def test_what_is_no_pin_is_400_and_opens_nothing(path, body, wish):
    """The field is named, and nothing was queued for it."""
    async with serving(ScriptedService(whole_answer("a"))) as server:
        answer = await server.client.post(path, json={**body, "flashrt_pin_prefix": wish})

    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == "flashrt_pin_prefix"
    assert server.service.clients == []


@pytest.mark.parametrize("wish", [True, False, 0, 640])
@pytest.mark.parametrize(
    ("path", "body"), [(CHAT, HELLO), ("/v1/completions", {"prompt": "a"})], ids=["chat", "text"]
)
async def test_a_pin_reaches_the_request_over_every_route(path, body, wish):
    """As it is: a truth value stays one."""
    async with serving(ScriptedService(whole_answer("a"))) as server:
        answer = await server.client.post(path, json={**body, "flashrt_pin_prefix": wish})
        item = await server.service.opened()

    assert answer.status_code == 200
    arrived = item.request.pin_prefix
    assert (arrived, type(arrived)) == (wish, type(wish))


async def test_an_echo_of_ids_is_their_text():
    """A text comes back as it was written, ids as they read."""
    async with serving(ScriptedService(whole_answer("!"))) as server:
        texts = [
            (
                await server.client.post("/v1/completions", json={"prompt": prompt, "echo": True})
            ).json()["choices"][0]["text"]
            for prompt in ("hi", [9, 9])
        ]

    assert texts == ["hi!", "\x01\x02\x03!"]


async def test_prompts_are_tokenized_and_ids_are_read():
    """Behind the same doors as every answer."""
    async with serving() as server:
        tokens = await server.client.post("/tokenize", json={"prompt": "hi"})
        text = await server.client.post("/detokenize", json={"tokens": [104, 105]})
        wrong = await server.client.post("/tokenize", content=b"{}")

    assert tokens.json() == {"tokens": [104, 105], "count": 2, "max_model_len": 4096}
    assert text.json() == {"prompt": "hi"}
    assert wrong.status_code == 415
