"""Bad input gets an OpenAI-style error with the right status, and the server goes on."""

import httpx
import pytest
import trio

from tests.whole.server import chat_body, fake_engine, running_server

CHAT = "/v1/chat/completions"
JSON = {"content-type": "application/json"}
USER = [{"role": "user", "content": "x"}]

BAD = {
    "not JSON": ({"content": b"{not json", "headers": JSON}, 400),
    "not UTF-8": ({"content": b'{"model": "\xff"}', "headers": JSON}, 400),
    "deep nesting": ({"content": b"[" * 100_000, "headers": JSON}, 400),
    "an empty body": ({"content": b"", "headers": JSON}, 400),
    "a list": ({"json": []}, 400),
    "messages of a wrong type": ({"json": {"model": "m", "messages": "hi"}}, 400),
    "no messages": ({"json": {"model": "m", "messages": []}}, 400),
    "messages missing": ({"json": {"model": "m"}}, 400),
    "an unknown role": ({"json": {"model": "m", "messages": [{"role": "boss"}]}}, 400),
    "stream as a string": ({"json": {"model": "m", "messages": USER, "stream": "true"}}, 400),
    "max_tokens of 0": ({"json": {"model": "m", "messages": USER, "max_tokens": 0}}, 400),
    "a hot temperature": ({"json": {"model": "m", "messages": USER, "temperature": 9}}, 400),
    "n of 2": ({"json": {"model": "m", "messages": USER, "n": 2}}, 400),
    "not declared as JSON": ({"content": b"{}", "headers": {"content-type": "text/plain"}}, 415),
    "a foreign Host": ({"json": chat_body("x"), "headers": {"host": "evil.example"}}, 403),
    "a foreign Origin": ({"json": chat_body("x"), "headers": {"origin": "http://evil"}}, 403),
    "a prompt beyond the context": ({"json": chat_body("word " * 6000)}, 413),
}


@pytest.fixture(scope="module")
def key_file(tmp_path_factory):
    file = tmp_path_factory.mktemp("keys") / "keys"
    file.write_text("right-key\n")
    file.chmod(0o600)
    return str(file)


def check_error(answer, status):
    """An error object in OpenAI's shape, without a traceback."""
    assert answer.status_code == status, answer.text
    error = answer.json()["error"]
    assert error["message"]
    assert {"message", "type", "param", "code"} <= error.keys()
    assert "Traceback" not in answer.text


async def test_every_kind_of_bad_input_has_its_error_and_the_server_goes_on():
    """After all of it, the same server answers as before."""
    async with running_server(fake_engine()) as server:
        before = await server.chat("hello")
        for name, (request, status) in BAD.items():
            answer = await server.http.post(CHAT, **request)
            try:
                check_error(answer, status)
            except Exception as error:
                raise AssertionError(name) from error
        check_error(await server.http.get("/v1/nowhere"), 404)
        check_error(await server.http.get(CHAT), 405)
        after = await server.chat("hello")
        assert after["choices"] == before["choices"]


async def test_the_overflow_names_both_numbers_in_words_that_clients_know():
    """So that agents compact instead of giving up."""
    async with running_server(fake_engine(max_seq=64)) as server:
        answer = await server.http.post(CHAT, json=chat_body("word " * 200))
    error = answer.json()["error"]
    assert answer.status_code == 413
    assert error["code"] == "context_length_exceeded"
    words = "maximum context length is 64 tokens. However, your messages resulted in"
    assert words in error["message"]


async def test_a_body_of_50_mb_is_refused_without_being_kept():
    """Declared or chunked: 413, and the next request is served."""
    block = b" " * 65536

    async def pieces():
        for _ in range(800):
            yield block

    async with running_server(fake_engine()) as server:
        for body in (b" " * (50 << 20), pieces()):
            try:
                answer = await server.http.post(CHAT, content=body, headers=JSON)
            except httpx.TransportError:
                # A client that is still sending may see the connection go before the answer.
                continue
            check_error(answer, 413)
        await server.chat("hello")


async def test_a_wrong_key_is_401_and_a_right_one_is_served(key_file):
    """With --api-key-file every route but /health asks for a key."""
    async with running_server(fake_engine(), api_key_file=key_file) as server:
        for headers in ({}, {"authorization": "Bearer wrong"}, {"authorization": "Bearer right"}):
            check_error(await server.http.post(CHAT, json=chat_body("x"), headers=headers), 401)
        headers = {"authorization": "Bearer right-key"}
        answer = await server.http.post(CHAT, json=chat_body("x"), headers=headers)
        assert answer.status_code == 200
        assert (await server.http.get("/health")).status_code == 200


async def test_health_answers_while_the_engine_works():
    """A probe is answered between two tokens, and says what is going on."""
    body = chat_body("go on", max_tokens=50_000, stream=True)
    streamed = trio.Event()

    async def stream(server) -> None:
        async with server.http.stream("POST", CHAT, json=body) as answer:
            async for _ in answer.aiter_bytes():
                streamed.set()

    async with (
        running_server(fake_engine(max_seq=60_000)) as server,
        trio.open_nursery() as nursery,
    ):
        nursery.start_soon(stream, server)
        await streamed.wait()
        # The first bytes come when the request is admitted, before the engine has picked it up.
        while await running_state(server) != "DECODE":
            pass
        for _ in range(15):
            assert await running_state(server) == "DECODE"
        nursery.cancel_scope.cancel()


async def running_state(server) -> str | None:
    """What /health says of the request that the engine works on."""
    running = (await server.http.get("/health")).json()["running"]
    return running and running["state"]
