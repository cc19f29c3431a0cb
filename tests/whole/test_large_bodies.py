"""A large request is its client's own affair: whoever asks for /health meanwhile is answered."""

import attrs
import trio

from flashrt.bench.soak.wire import Connection, request_bytes
from tests.http.vocabulary import CHAT
from tests.whole.server import VOICE, chat_body, fake_engine, running_server
from tests.whole.stage import RENDERER
from tests.whole.watch import health, until

TEXT = "a megabyte of code, and no end. " * (1 << 15)
PIECES = 16


async def test_health_answers_between_any_two_pieces_of_a_body():
    """A body that comes slowly holds nobody up, and is refused for its length at the end."""
    async with running_server(fake_engine()) as server:
        place = server.place
        data = request_bytes(place, "POST", CHAT, chat_body(TEXT))
        size = len(data) // PIECES + 1
        client = await Connection.open(place)
        for start in range(0, len(data), size):
            assert (await health(server))["totals"]["requests"] == {}
            await client.send(data[start : start + size])
        reply = await client.reply("POST")
        await client.leave()
    assert reply.status == 413
    assert reply.json()["error"]["code"] == "context_length_exceeded"


async def test_health_answers_while_a_large_prompt_is_rendered():
    """Rendering is in a helper thread: whoever is held there holds nobody's /health."""
    voice = attrs.evolve(VOICE, renderer=RENDERER)
    async with (
        running_server(fake_engine(), voice=voice) as server,
        trio.open_nursery() as nursery,
    ):
        RENDERER.hold()
        try:
            nursery.start_soon(server.chat, "short")
            nursery.start_soon(_is_too_long, server)

            async def both_are_held() -> bool:
                return (await health(server))["activity"]["rendering"] == 2

            await until(both_are_held)
            assert (await health(server))["totals"]["requests"] == {}
        finally:
            RENDERER.let_go()


async def _is_too_long(server) -> None:
    answer = await server.http.post(CHAT, json=chat_body(TEXT))
    assert answer.status_code == 413
