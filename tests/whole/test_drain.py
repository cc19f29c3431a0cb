"""Ways out over real sockets: the soft drain of an operator, and the hard one of a signal."""

import json
import signal
import time
from contextlib import asynccontextmanager

import attrs
import httpx
import pytest
import trio

from flashrt.errors import Unavailable
from flashrt.serve import serve
from flashrt.settings import load
from tests.gate import GatedPerformer
from tests.test_service import service
from tests.whole.server import ENDLESS, VOICE, Server, chat_body, fake_engine, running_server
from tests.whole.watch import MANY, health, until

CHAT = "/v1/chat/completions"
FIRST = {"role": "user", "content": "the first question"}
GOING_ON = [FIRST, {"role": "assistant", "content": "yes"}, {"role": "user", "content": "and?"}]


@attrs.define
class Stoppable:
    """A server that a signal stops, whose engine waits for permits; `status`: how it ended."""

    server: Server
    gate: GatedPerformer
    status: int | None = None

    async def ask(self, kept: list, **wish) -> None:
        """Ask for an endless answer, and keep the whole answer or its events."""
        body = {**chat_body("hello", **ENDLESS), "max_tokens": 500, **wish}
        answer = await self.server.http.post(CHAT, json=body)
        kept.append(answer)

    async def queued(self, count: int) -> None:
        async def are() -> bool:
            said = await health(self.server)
            return said["queued"] == count and said["running"] is not None

        await until(are)


@asynccontextmanager
async def stoppable(**wish):
    """Serve until the block is over and the server has stopped."""
    gate = GatedPerformer(fake_engine())
    settings = load({"port": "0", **{k: str(v) for k, v in wish.items()}}, environ={})

    async def run(task_status):
        started = []

        class Report:
            def started(self, address):
                client = httpx.AsyncClient(base_url=address.url, timeout=20)
                started.append(Stoppable(Server(address, client), gate))
                task_status.started(started[0])

        status = await serve(settings, VOICE, gate.engine, performer=gate, task_status=Report())
        started[0].status = status

    with trio.fail_after(30):
        async with trio.open_nursery() as nursery:
            running = await nursery.start(run)
            async with running.server.http:
                yield running
                await until(lambda: running.status is not None)


def events(answer: httpx.Response) -> list:
    """What stands behind each `data:`."""
    said = [line[6:] for line in answer.text.splitlines() if line.startswith("data: ")]
    return [json.loads(one) if one != "[DONE]" else one for one in said]


def is_cut_off(answer: httpx.Response) -> bool:
    """Whether a stream ends with one error event that says why, and with nothing behind it."""
    *before, last = events(answer)
    clean = all(one != "[DONE]" and one.get("error") is None for one in before)
    return clean and last["error"]["code"] == "server_stopping"


async def test_within_the_grace_time_all_that_is_here_is_served():
    """What runs and what waits; then the server is gone at once, with status 0."""
    whole, waited = [], []
    began = time.monotonic()
    async with stoppable(graceful_timeout_s=600) as running, trio.open_nursery() as clients:
        clients.start_soon(lambda: running.ask(whole, stream=True, max_tokens=9))
        await running.queued(0)
        clients.start_soon(lambda: running.ask(waited, max_tokens=9))
        await running.queued(1)
        running.gate.allow(2)
        signal.raise_signal(signal.SIGTERM)
        running.gate.allow(MANY)
    assert events(whole[0])[-1] == "[DONE]"
    assert waited[0].json()["choices"][0]["finish_reason"] == "length"
    assert running.status == 0
    assert time.monotonic() - began < 25


@pytest.mark.parametrize("streamed", [False, True], ids=["buffered", "streamed"])
async def test_after_the_grace_time_each_request_gets_one_ending(streamed):
    """What waits gets it at once, what runs at its next boundary; the status is still 0."""
    running_one, waiting_one, waiting_stream = [], [], []
    async with stoppable(graceful_timeout_s=0) as running, trio.open_nursery() as clients:
        clients.start_soon(lambda: running.ask(running_one, stream=streamed))
        await running.queued(0)
        clients.start_soon(lambda: running.ask(waiting_one))
        clients.start_soon(lambda: running.ask(waiting_stream, stream=True))
        await running.queued(2)
        signal.raise_signal(signal.SIGTERM)
        await until(lambda: bool(waiting_one and waiting_stream))
        assert not running_one
        running.gate.allow(1)
    refused = waiting_one[0]
    assert (refused.status_code, refused.headers["Retry-After"]) == (503, "5")
    assert refused.json()["error"]["code"] == "server_stopping"
    assert is_cut_off(waiting_stream[0])
    if streamed:
        assert is_cut_off(running_one[0])
    else:
        assert running_one[0].status_code == 503
        assert running_one[0].json()["error"]["code"] == "server_stopping"
    assert len(running.gate.steps) == 1
    assert running.status == 0


async def test_a_soft_drain_keeps_its_conversations_and_takes_no_new_ones():
    """Known by the hint or by the opening; the rest is sent elsewhere; and there is a way back."""
    async with running_server(fake_engine(), server_name="w1") as server:
        hinted = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 4}
        await server.chat("", messages=[FIRST])
        await server.http.post(CHAT, json=hinted, headers={"session-id": "s"})

        told = await server.http.post("/admin/drain", json={})
        ready = await server.http.get("/health/ready")
        assert (told.status_code, told.json()) == (200, {"status": "soft_draining"})
        assert (ready.status_code, ready.json()) == (404, {"status": "soft_draining"})
        assert (await health(server))["status"] == "soft_draining"

        assert (await server.chat("", messages=GOING_ON))["flashrt"]["cached_tokens"] > 0
        other = {**hinted, "messages": [{"role": "user", "content": "a title, please"}]}
        stranger = {**hinted, "messages": [{"role": "user", "content": "good morning"}]}
        mine = await server.http.post(CHAT, json=other, headers={"session-id": "s"})
        new = await server.http.post(CHAT, json=stranger, headers={"session-id": "t"})
        assert mine.status_code == 200
        assert (new.status_code, new.headers["Retry-After"]) == (503, "1")
        assert "flashrt drain --undo" in new.json()["error"]["message"]

        back = await server.http.post("/admin/drain", json={"undo": True})
        assert back.json() == {"status": "ready"}
        assert (await server.http.get("/health/ready")).status_code == 200
        assert (await server.http.post(CHAT, json=stranger)).status_code == 200


async def test_a_signal_ends_a_soft_drain_with_a_hard_one():
    """What runs is served, and the status is 0."""
    kept = []
    async with stoppable() as running, trio.open_nursery() as clients:
        clients.start_soon(lambda: running.ask(kept, max_tokens=9))
        await running.queued(0)
        assert (await running.server.http.post("/admin/drain", json={})).status_code == 200
        signal.raise_signal(signal.SIGTERM)
        running.gate.allow(MANY)
    assert kept[0].status_code == 200
    assert running.status == 0


@pytest.mark.parametrize("undo", [False, True])
async def test_there_is_no_way_back_from_a_hard_drain(undo):
    """Neither to a soft one nor to work; asking is a 503."""
    desk = service()
    desk.soft_drain()
    desk.drain()
    with pytest.raises(Unavailable, match="draining"):
        desk.soft_drain(undo=undo)
    assert desk.ready() == (503, {"status": "draining"})
