"""What one client knows of its requests, against what the server has counted of them."""

import random
from contextlib import asynccontextmanager

import pytest

from flashrt.bench.soak import quiet
from flashrt.bench.soak.actions import ACTIONS
from flashrt.bench.soak.chats import OK, pages
from flashrt.bench.soak.client import Client, Target
from flashrt.bench.soak.tally import Tally
from tests.gate import GatedPerformer
from tests.http.vocabulary import post
from tests.whole.server import chat_body, fake_engine, running_server

MAY_LEAVE = {"hang_up", "stopped_reader", "pipelined_and_gone"}
"""Actions that need not hear what became of a request."""

KNOWS = [action for action in ACTIONS if action.name not in MAY_LEAVE and not action.needs_key]
DICE = 8


@asynccontextmanager
async def client_of(place):
    """A client that does all there is to do with the server there."""
    documented, window = await quiet.documented(place), await quiet.window(place)
    client = Client(0, Target(place, Tally(), documented, window, 30, lambda compared: None))
    yield client
    await client.hang_up()


@pytest.fixture
async def client():
    """The only client of a server that is at rest."""
    async with (
        running_server(fake_engine(max_seq=2048), max_queue_depth=5, max_body_mb=1) as server,
        client_of(server.place) as client,
    ):
        yield client


async def standing(place, *, running, queued):
    """Waits until the engine works, or does not, and so many requests wait for it."""
    report = await quiet.health(place)
    while (report["running"] is not None, report["queued"]) != (running, queued):
        report = await quiet.health(place)


async def agrees(client):
    """Fails unless the server has counted exactly what the client knows of."""
    records = client.target.tally.records
    report = await quiet.health(client.target.place)
    assert records.unknown == 0, f"what became of {records.unknown} requests?"
    assert records.finished == records.answered
    assert records.wrong(report["totals"]["requests"]) == []


async def test_every_page_that_a_probe_may_ask_is_counted_as_the_server_does(client):
    """Some pages wait in the line and have records, and some do not: no dice choose here."""
    assert "/v1/sessions" in pages(client)
    for path in pages(client):
        await client.expect(OK, "GET", path)
        await agrees(client)


async def test_a_page_that_a_full_queue_refuses_is_counted_as_the_server_does():
    """The refusal of a page that waits in the line has a record; the others are served."""
    gate = GatedPerformer(fake_engine())
    async with (
        running_server(gate.engine, performer=gate, max_queue_depth=1) as server,
        client_of(server.place) as client,
    ):
        others = [await server.stream() for _ in range(2)]
        for queued, other in enumerate(others):
            await other.send_all(post(chat_body("hello")))
            await standing(server.place, running=True, queued=queued)
        try:
            replies = {path: await client.expect(OK, "GET", path) for path in pages(client)}
            await agrees(client)
        finally:
            gate.allow(1000)
        assert [path for path in replies if replies[path].status == 429] == ["/v1/sessions"]
        await standing(server.place, running=False, queued=0)
        for other in others:
            await other.aclose()


@pytest.mark.parametrize("action", KNOWS, ids=lambda action: action.name)
async def test_a_client_that_waits_knows_of_every_record(action, client):
    """Whatever it does, right or wrong: nobody else is there, and nothing is in between."""
    for number in range(DICE):
        client.action, client.name = number, action.name
        await action.run(client, random.Random(number))
        await agrees(client)
