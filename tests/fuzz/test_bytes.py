"""Any bytes at all: a documented status or a closed connection, and the next client is served."""

from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from itertools import islice
from typing import Any

import attrs
import msgspec
import pytest
import trio
from hypothesis import strategies as st

from flashrt.http.openapi import OF_NO_ROUTE, STATUSES
from flashrt.protocols.error import ErrorObject
from tests.fuzz.driving import Held, faults_in, for_all, settled
from tests.fuzz.good import GOOD, Draft
from tests.fuzz.mutants import mutants, single_changes
from tests.fuzz.wire import Answer, answers, exchange
from tests.whole.server import Server, fake_engine, running_server

FINE = {100, 200, 204}
REFUSED = {*STATUSES, *OF_NO_ROUTE} - {500}
CLIENTS = 16
CUTS = (0, 1, 30, 200, 17_000)

Connection = tuple[bytes, int]


def check(answer: Answer) -> None:
    """A status of ours; a refusal by a route is an error object or the server's state."""
    assert answer.status in FINE | REFUSED
    assert b"Traceback" not in answer.body
    if answer.status in FINE or not answer.whole or not answer.body:
        return
    kind = ErrorObject if b"error" in answer.body else dict[str, str]
    msgspec.json.decode(answer.body, type=kind)


@attrs.frozen
class Target:
    """A server, and how it answers a good client."""

    server: Server
    answer: Any

    async def under(self, connections: Iterable[Connection]) -> None:
        """All of them at once; then the same server answers as before."""
        async with trio.open_nursery() as nursery:
            for data, cut in connections:
                nursery.start_soon(self._one, data, cut)
        await self.server.http.post("/admin/drain", json={"undo": True})
        assert (await self.server.chat())["choices"] == self.answer

    async def _one(self, data: bytes, cut: int) -> None:
        for answer in answers(await exchange(self.server.address, data, cut=cut)):
            check(answer)


@asynccontextmanager
async def target(log: pytest.LogCaptureFixture) -> AsyncIterator[Target]:
    """A server for the block, at whose end nothing is left of what was sent."""
    limits = {"queue_per_client": 64, "max_queue_depth": 64, "max_output_tokens": 20}
    async with running_server(fake_engine(max_seq=2048), within_s=900, **limits) as server:
        good = await server.chat()
        start = Held.now()
        yield Target(server, good["choices"])
        await settled(start)
    assert faults_in(log) == []


async def test_the_good_requests_are_good(caplog):
    """What the fuzzers start from is served, or their mutants would all be refused at the door."""
    served = []

    async def one(server: Server, request: Draft) -> None:
        said = await exchange(server.address, request.written(), wanted=1)
        served.append([answer.status for answer in answers(said)])

    async with target(caplog) as at, trio.open_nursery() as nursery:
        for request in GOOD:
            nursery.start_soon(one, at.server, request)
    assert served.count([204]) == 1
    assert served.count([200]) == len(GOOD) - 1


@pytest.mark.parametrize("examples", [15, pytest.param(500, marks=pytest.mark.slow)])
async def test_spoiled_requests_get_a_documented_status_or_are_closed(examples, caplog):
    """Parts, values and bytes are changed; several clients send such at a time."""
    connections = st.lists(st.tuples(mutants(), st.sampled_from(CUTS)), max_size=CLIENTS)

    async with target(caplog) as at:

        async def several(sent: list[Connection]) -> None:
            await at.under(sent)
            assert faults_in(caplog) == []

        await for_all(connections, several, examples=examples)


@pytest.mark.slow
async def test_every_single_change_gets_a_documented_status(caplog):
    """Each value of each body, each header, target and method that nobody would send: 20,000."""
    left = ((data, 0) for data in single_changes())
    async with target(caplog) as at:
        while sent := list(islice(left, 3 * CLIENTS)):
            await at.under(sent)
            assert faults_in(caplog) == []
