"""A real server on a real socket, inside the test's own trio run."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import attrs
import httpx
import trio

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
    engine: Engine, *, performer: Performer | None = None, within_s: float = 60, **wish: Any
) -> AsyncIterator[Server]:
    """Serve `engine` for the block; `performer` may gate its steps."""
    flags = {"port": 0, **wish}
    settings = load({name: str(value) for name, value in flags.items()}, environ={})
    with trio.fail_after(within_s):
        async with trio.open_nursery() as nursery:
            address = await nursery.start(_serve, settings, engine, performer)
            async with httpx.AsyncClient(base_url=address.url, timeout=within_s) as client:
                yield Server(address, client)
            nursery.cancel_scope.cancel()


async def _serve(
    settings: Settings,
    engine: Engine,
    performer: Performer | None,
    task_status: trio.TaskStatus[Address],
) -> None:
    await serve(settings, VOICE, engine, performer=performer, task_status=task_status)
