"""A server whose every phase a test can hold, a friend's conversation on it, and a rude client."""

import gc
import json
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import attrs
import trio
import trio.testing

from flashrt.bench.soak.wire import Connection, Reply, exchange, request_bytes
from flashrt.chat.template import Template
from flashrt.demo import DEMO_PATH
from flashrt.engine.protocol import SamplingParams
from flashrt.items import ResultSink
from tests.gate import GatedPerformer, GatedRenderer
from tests.http.vocabulary import CHAT, sse
from tests.whole.server import VOICE, Server, chat_body, fake_engine, running_server
from tests.whole.watch import MANY, health, until

TOKENIZER = VOICE.tokenizer
RENDERER = GatedRenderer(
    TOKENIZER, Template.load(DEMO_PATH, TOKENIZER.control, TOKENIZER.named_tokens)
)
SMALL_BUFFER_BYTES = 4096


@attrs.frozen
class Holdings:
    """What this process holds: trio's tasks, open files, and sinks of answers."""

    tasks: int
    files: int
    sinks: int

    @classmethod
    def now(cls) -> "Holdings":
        """Counted now; what only cycles keep alive is let go before."""
        gc.collect()
        return cls(
            tasks=trio.lowlevel.current_statistics().tasks_living,
            files=open_files(),
            sinks=sum(isinstance(thing, ResultSink) for thing in gc.get_objects()),
        )


def open_files() -> int:
    """Descriptors of this process."""
    return len(os.listdir("/proc/self/fd"))


@attrs.define
class Stage:
    """The server, the gates before its engine and its renderer, and the friend's messages."""

    server: Server
    gate: GatedPerformer
    log: Path
    before: Holdings
    """What was held when nobody but the one that asks for /health had been here."""
    friend: list[dict[str, Any]] = attrs.field(factory=list)
    friend_tokens: int = 0
    """How long the friend's conversation is, with its newest answer."""

    async def ask(self, messages: list[dict[str, Any]]) -> dict[str, Any]:
        """A polite request on a connection of its own."""
        reply = await exchange(self.server.place, "POST", CHAT, chat_body("", messages=messages))
        return answer_of(reply)

    async def friend_asks(self, text: str) -> dict[str, Any]:
        """One more turn of the friend's conversation: the `flashrt` block of its answer."""
        self.friend.append({"role": "user", "content": text})
        answer = await self.ask(self.friend)
        self.friend.append(answer["message"])
        block: dict[str, Any] = answer["flashrt"]
        self.friend_tokens = len(block["prompt_token_ids"]) + len(block["completion_token_ids"])
        return block

    async def connect(self) -> Connection:
        """A client with so little room that a long answer does not fit between it and a server."""
        return await Connection.open(self.server.place, receive_buffer_bytes=SMALL_BUFFER_BYTES)

    def bytes_of(self, body: dict[str, Any]) -> bytes:
        """A chat request as it goes over the wire."""
        return request_bytes(self.server.place, "POST", CHAT, body)

    async def steps(self, count: int) -> None:
        """Let so many steps be done, and see them done."""
        wanted = len(self.gate.steps) + count
        self.gate.allow(count)
        await until(lambda: len(self.gate.steps) >= wanted)

    async def until_idle(self) -> None:
        """Until nothing runs or waits; permits that are left are taken back."""

        async def idle() -> bool:
            now = await health(self.server)
            return now["running"] is None and not now["queued"]

        await until(idle)
        self.gate.close()

    def lines(self) -> list[dict[str, Any]]:
        """The request log."""
        return [json.loads(line) for line in self.log.read_text().splitlines()]


@asynccontextmanager
async def staged(log: Path, stall_s: float) -> AsyncIterator[Stage]:
    """A friend has had a turn, whose state is hot; then the engine's gate is closed.

    `stall_s`: how long a client that does not read is waited for.
    """
    gate = GatedPerformer(fake_engine())
    wish = {"chunk_tokens": 64, "request_log": log}
    voice = attrs.evolve(VOICE, renderer=RENDERER)
    async with running_server(
        gate.engine, performer=gate, voice=voice, stall_s=stall_s, within_s=20, **wish
    ) as server:
        await health(server)
        await trio.testing.wait_all_tasks_blocked()
        stage = Stage(server, gate, log, Holdings.now())
        gate.allow(MANY)
        try:
            await stage.friend_asks("What grows in the winter?")
            await stage.until_idle()
            yield stage
        finally:
            RENDERER.let_go()
            gate.allow(MANY)


def answer_of(reply: Reply) -> dict[str, Any]:
    """Message and `flashrt` block of a whole answer, streamed or buffered."""
    assert reply.status == 200, reply.body
    if reply.headers["content-type"].startswith("text/event-stream"):
        *chunks, done = sse(reply.body.decode())
        assert done == "[DONE]"
        return {"flashrt": chunks[-1]["flashrt"]}
    body = reply.json()
    return {"message": body["choices"][0]["message"], "flashrt": body["flashrt"]}


def cold_ids(block: dict[str, Any]) -> list[int]:
    """The oracle: what a fresh engine says after the same prompt ids."""
    ids: list[int] = []
    engine = fake_engine()
    list(engine.prefill(block["prompt_token_ids"]))
    for chunk in engine.decode(SamplingParams(temperature=0, stop_ids=VOICE.stop_ids)):
        ids += chunk.tokens
        if len(ids) == len(block["completion_token_ids"]):
            break
    return ids
