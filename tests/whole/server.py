"""A real server on a real socket, inside the test's own trio run."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import attrs
import httpx
import trio

from flashrt.bench.soak.wire import Place
from flashrt.demo import DEMO_PATH
from flashrt.engine.fake import FakeEngine
from flashrt.engine.protocol import Engine
from flashrt.http.server import Address
from flashrt.policy.steps import Performer
from flashrt.serve import load_voice, serve
from flashrt.service import Voice
from flashrt.settings import Settings, load

VOICE: Voice = load_voice(DEMO_PATH)
ENDS = ("<|im_end|>", "<|endoftext|>")


ENDLESS: dict[str, Any] = {
    "logit_bias": {str(i): -100 for text in ENDS for i in VOICE.tokenizer.encode(text)}
}
"""A wish for an answer that does not end by itself, whatever the checkpoint has to say."""


def fake_engine(**wish: Any) -> FakeEngine:
    """A fake engine over the demo's vocabulary."""
    return FakeEngine(**{"vocab_size": VOICE.tokenizer.vocab_size, "max_seq": 4096, **wish})


@attrs.frozen
class Server:
    """Where it listens, and a client for it."""

    address: Address
    http: httpx.AsyncClient

    @property
    def url(self) -> str:
        """The root URL."""
        return self.address.url

    @property
    def place(self) -> Place:
        """The same for clients of the soak's kind."""
        return Place(self.address.host, self.address.port)

    async def chat(self, text: str = "hello", **wish: Any) -> dict[str, Any]:
        """One buffered chat answer; fails unless it is a 200."""
        answer = await self.http.post("/v1/chat/completions", json=chat_body(text, **wish))
        assert answer.status_code == 200, answer.text
        body: dict[str, Any] = answer.json()
        return body

    async def stream(self) -> trio.SocketStream:
        """A bare connection, for clients that misbehave."""
        return await trio.open_tcp_stream(self.address.host, self.address.port)


def chat_body(text: str, **wish: Any) -> dict[str, Any]:
    """A small chat request: greedy, short, ids returned."""
    return {
        "model": "any",
        "messages": [{"role": "user", "content": text}],
        "max_tokens": 8,
        "temperature": 0,
        "flashrt_return_token_ids": True,
        **wish,
    }


@asynccontextmanager
async def running_server(
    engine: Engine,
    *,
    performer: Performer | None = None,
    voice: Voice = VOICE,
    stall_s: float | None = None,
    within_s: float = 60,
    **wish: Any,
) -> AsyncIterator[Server]:
    """Serve `engine` for the block; `performer` may gate its steps, and `voice` its prompts.

    `stall_s`: a --client-stall-s that is shorter than a person may ask for.
    """
    flags = {"port": 0, **wish}
    settings = load({name: str(value) for name, value in flags.items()}, environ={})
    if stall_s is not None:
        settings = attrs.evolve(settings, client_stall_s=stall_s)
    with trio.fail_after(within_s):
        async with trio.open_nursery() as nursery:
            address = await nursery.start(_serve, settings, voice, engine, performer)
            # There is no TLS here, and to load certificates takes longer than most tests.
            async with httpx.AsyncClient(
                base_url=address.url, timeout=within_s, verify=False
            ) as client:
                yield Server(address, client)
            nursery.cancel_scope.cancel()


async def _serve(
    settings: Settings,
    voice: Voice,
    engine: Engine,
    performer: Performer | None,
    task_status: trio.TaskStatus[Address],
) -> None:
    await serve(settings, voice, engine, performer=performer, task_status=task_status)
