"""Three workers on the demo checkpoint behind HAProxy, which pip cannot install.

One fleet is led through a day of it: conversations with and without hints, a soft drain, a kill,
a worker that forgets, a full queue, a stop. Whatever happens, every answer is the one that a single
quiet worker gives to the same tokens.
"""

import os
import re
import shutil
import signal
from typing import Any

import attrs
import httpx
import pytest
import trio

from flashrt import cli
from tests.external.fleet import WORKERS, Fleet, Worker, fleet
from tests.whole.server import ENDLESS

pytestmark = pytest.mark.external

CHAT = "/v1/chat/completions"
WITHIN_S = 300
TURNS_AT_ONCE = 3
SYSTEM = "You are a careful agent. " + " ".join(
    f"Rule {i}: when the user asks for number {i}, say what it is and nothing else."
    for i in range(100)
)
"""Shared by all, as clients of one kind share theirs, and long enough to be pinned (6 kB)."""

WISH = {"model": "any", "max_tokens": 12, "temperature": 0, "flashrt_return_token_ids": True}

HINTS: dict[str, Any] = {
    "header": lambda name: ({"session-id": name}, {}),
    "claude": lambda name: ({"x-claude-code-session-id": name}, {}),
    "field": lambda name: ({}, {"prompt_cache_key": name}),
    "none": lambda name: ({}, {}),
}
"""How a client names its conversation: headers and fields."""


@attrs.frozen
class Turn:
    """One answer: the messages in front of it, who gave it, and the tokens of both."""

    messages: list[dict[str, Any]]
    worker: str
    prompt: list[int]
    answer: list[int]
    cached_tokens: int


@attrs.define
class Talk:
    """One conversation of a client."""

    name: str
    headers: dict[str, str]
    fields: dict[str, Any]
    messages: list[dict[str, Any]]
    turns: list[Turn] = attrs.field(factory=list)

    @classmethod
    def new(cls, name: str, hint: str) -> "Talk":
        """A conversation that nobody knows. Its first question is short, as people's are."""
        headers, fields = HINTS[hint](name)
        return cls(name, headers, fields, [{"role": "system", "content": SYSTEM}])

    def body(self, **wish: Any) -> dict[str, Any]:
        """A greedy request for the next answer."""
        whole = {**WISH, "enable_thinking": False, **self.fields, "messages": self.messages}
        return {**whole, **wish}

    def ask(self) -> None:
        """Say something; every turn of every conversation says something else."""
        text = f"{self.name}: number {len(self.turns)}?"
        self.messages.append({"role": "user", "content": text})

    async def turn(self, http: httpx.AsyncClient) -> str:
        """Ask and be answered; the name of the worker."""
        self.ask()
        return await self.answer(http)

    async def answer(self, http: httpx.AsyncClient) -> str:
        """Be answered, at the first try."""
        said = await http.post(CHAT, json=self.body(), headers=self.headers)
        assert said.status_code == 200, said.text
        answer = said.json()
        told = answer["flashrt"]
        turn = Turn(
            list(self.messages),
            said.headers["x-flashrt-worker"],
            told["prompt_token_ids"],
            told["completion_token_ids"],
            answer["usage"]["prompt_tokens_details"]["cached_tokens"],
        )
        self.turns.append(turn)
        self.messages.append(answer["choices"][0]["message"])
        return turn.worker

    @property
    def workers(self) -> list[str]:
        """Who served each turn."""
        return [turn.worker for turn in self.turns]

    @property
    def is_warm(self) -> bool:
        """Whether the last turn read no more than what was new in it."""
        return self.turns[-1].cached_tokens >= len(self.turns[-2].prompt)


def talks(prefix: str, count: int = 1) -> list[Talk]:
    """So many conversations of every kind of client."""
    return [Talk.new(f"{prefix}{i}-{hint}", hint) for i in range(count) for hint in HINTS]


async def round_of(many: list[Talk], http: httpx.AsyncClient) -> None:
    """One turn of each, a few at a time."""
    places = trio.CapacityLimiter(TURNS_AT_ONCE)

    async def one(talk: Talk) -> None:
        async with places:
            await talk.turn(http)

    async with trio.open_nursery() as nursery:
        for talk in many:
            nursery.start_soon(one, talk)


async def drain(url: str, *flags: str) -> None:
    """`flashrt drain`, as an operator types it."""
    argv = ["drain", "--url", url, *flags]
    assert await trio.to_thread.run_sync(cli.main, argv) == 0


# -- what happens, in its order --------------------------------------------------------------------


async def they_stay_where_they_are(routed: Fleet, many: list[Talk], rounds: int = 3) -> None:
    """Hinted or not, warm from the second turn on; and every worker has some."""
    for _ in range(rounds):
        await round_of(many, routed.http)
    for talk in many:
        assert len(set(talk.workers)) == 1, (talk.name, talk.workers)
        assert talk.is_warm, (talk.name, talk.turns[-1].cached_tokens)
    assert {talk.workers[0] for talk in many} == set(WORKERS)


async def side_requests_are_not_pinned(routed: Fleet, many: list[Talk]) -> None:
    """A title in a session's name may go anywhere, and the session stays."""
    served = set()
    for talk in many:
        body = {**talk.body(), "messages": [{"role": "user", "content": "A title, please."}]}
        said = await routed.http.post(CHAT, json=body, headers=talk.headers)
        assert said.status_code == 200
        served.add(said.headers["x-flashrt-worker"] == talk.workers[-1])
    assert False in served
    await they_stay_where_they_are(routed, many, rounds=1)


async def a_soft_drain_moves_nobody(routed: Fleet, many: list[Talk]) -> list[Talk]:
    """Its conversations go on there; new ones go elsewhere; afterwards it is as it was."""
    worker = routed.workers["w1"]
    await drain(worker.url, "--wait")
    await routed.until_seen("w1", "NOLB")
    fresh = talks("drained")
    await round_of([*many, *fresh], routed.http)
    await round_of([*many, *fresh], routed.http)
    assert all("w1" not in talk.workers for talk in fresh)
    for talk in (*many, *fresh):
        assert len(set(talk.workers)) == 1, (talk.name, talk.workers)
        assert talk.is_warm
    await drain(worker.url, "--undo")
    await routed.until_seen("w1", "UP")
    return fresh


async def killed_under(routed: Fleet, talk: Talk, worker: Worker) -> bytes:
    """Kill the worker in the middle of an answer; what the client has got by then."""
    body = talk.body(stream=True, max_tokens=2000, **ENDLESS)
    read = b""
    try:
        async with routed.http.stream("POST", CHAT, json=body, headers=talk.headers) as stream:
            assert stream.headers["x-flashrt-worker"] == worker.name
            async for piece in stream.aiter_bytes():
                read += piece
                worker.process.kill()
    except httpx.RemoteProtocolError:
        return read
    raise AssertionError("a broken stream has ended as if it were whole")


async def a_kill_moves_its_own_alone(routed: Fleet, many: list[Talk]) -> None:
    """The stream breaks off visibly; asked again, it is served elsewhere, and cold."""
    moved = [talk for talk in many if talk.workers[-1] == "w2"]
    victim, *_ = moved
    victim.ask()
    assert b"[DONE]" not in await killed_under(routed, victim, routed.workers["w2"])
    assert await victim.answer(routed.http) != "w2"
    assert not victim.is_warm
    for _ in range(2):
        await round_of(many, routed.http)
    for talk in many:
        away = set(talk.workers[-2:])
        assert away in ({"w1"}, {"w3"}), (talk.name, talk.workers)
        assert talk in moved or len(set(talk.workers)) == 1, (talk.name, talk.workers)
        assert talk.is_warm


async def a_worker_comes_back_to_new_conversations(routed: Fleet, many: list[Talk]) -> list[Talk]:
    """Those that had to leave stay where they are now."""
    worker = routed.workers["w2"]
    worker.start()
    await routed.until_seen("w2", "UP")
    before = [talk.workers[-1] for talk in many]
    await round_of(many, routed.http)
    assert [talk.workers[-1] for talk in many] == before
    fresh = talks("back", 2)
    await round_of(fresh, routed.http)
    await round_of(fresh, routed.http)
    assert "w2" in {talk.workers[0] for talk in fresh}
    assert all(len(set(talk.workers)) == 1 and talk.is_warm for talk in fresh)
    return fresh


async def what_a_draining_worker_does_not_know_goes_elsewhere(
    routed: Fleet, many: list[Talk]
) -> None:
    """Restarted and drained, it says 503 to those who were pinned to it: the router asks others."""
    worker = routed.workers["w2"]
    pinned = [talk for talk in many if talk.workers[-1] == "w2"]
    assert pinned
    worker.process.kill()
    await worker.ended()
    await routed.until_seen("w2", "DOWN")
    worker.start()
    await routed.until_seen("w2", "UP")
    await drain(worker.url)
    await routed.until_seen("w2", "NOLB")
    for talk in pinned:
        assert await talk.turn(routed.http) != "w2"
    async with httpx.AsyncClient(base_url=worker.url) as http:
        ended = (await http.get("/health")).json()["totals"]["requests"]
    assert set(ended) == {"REJECTED"}, ended
    await drain(worker.url, "--undo")
    await routed.until_seen("w2", "UP")


async def a_full_queue_is_told_to_its_client(routed: Fleet) -> None:
    """429 and Retry-After as the worker says it: no other worker has this conversation hot."""
    talk = Talk.new("crowd", "header")
    owner = await talk.turn(routed.http)
    talk.ask()
    endless = talk.body(stream=True, max_tokens=4000, **ENDLESS)

    async def hold(task_status: trio.TaskStatus[None]) -> None:
        async with routed.http.stream("POST", CHAT, json=endless, headers=talk.headers) as stream:
            task_status.started()
            async for _ in stream.aiter_bytes():
                pass

    async with trio.open_nursery() as crowd:
        for _ in range(5):
            await crowd.start(hold)
        said = await routed.http.post(CHAT, json=talk.body(), headers=talk.headers)
        crowd.cancel_scope.cancel()
    assert (said.status_code, said.json()["error"]["code"]) == (429, "queue_full")
    assert said.headers["x-flashrt-worker"] == owner
    assert int(said.headers["Retry-After"]) >= 1


async def a_stop_lets_its_answers_finish(routed: Fleet, many: list[Talk]) -> None:
    """SIGTERM: the stream that runs ends well, the status is 0, the conversation goes elsewhere."""
    worker = routed.workers["w3"]
    talk = next(talk for talk in many if talk.workers[-1] == "w3")
    read = b""
    talk.ask()
    body = talk.body(stream=True, max_tokens=200, **ENDLESS)
    async with routed.http.stream("POST", CHAT, json=body, headers=talk.headers) as stream:
        assert stream.headers["x-flashrt-worker"] == "w3"
        async for piece in stream.aiter_bytes():
            if not read:
                worker.process.send_signal(signal.SIGTERM)
            read += piece
    assert read.endswith(b"data: [DONE]\n\n")
    assert await worker.ended() == 0
    assert await talk.answer(routed.http) != "w3"


async def without_workers_the_router_says_so(routed: Fleet) -> None:
    """A 503 in the shape of ours, with a Retry-After."""
    for worker in routed.workers.values():
        worker.process.kill()
        await routed.until_seen(worker.name, "DOWN")
    said = await routed.http.post(CHAT, json=Talk.new("late", "none").body())
    assert (said.status_code, said.headers["Retry-After"]) == (503, "5")
    assert said.json()["error"]["code"] == "unavailable"


async def every_answer_is_that_of_a_quiet_worker(routed: Fleet, many: list[Talk]) -> None:
    """Nothing has happened to it: the prompts say what was asked, and the same tokens follow.

    An answer that comes back to its worker is read as it was sampled, elsewhere as it is spelled,
    so the tokens of a prompt may differ between workers, and so may blanks around an answer and
    control tokens in it; what they say may not.
    """
    async with httpx.AsyncClient(base_url=routed.alone.url, timeout=60) as http:
        for talk in many:
            last = talk.turns[-1]
            asked = {"messages": last.messages, "enable_thinking": False}
            canonical = (await http.post("/tokenize", json=asked)).json()["tokens"]
            assert await _said(http, last.prompt) == await _said(http, canonical), talk.name
            for turn in talk.turns:
                again = {**WISH, "prompt": turn.prompt}
                said = (await http.post("/v1/completions", json=again)).json()
                assert said["flashrt"]["completion_token_ids"] == turn.answer, talk.name


async def _said(http: httpx.AsyncClient, ids: list[int]) -> list[str]:
    """The words of a text, without tags and control tokens."""
    said = await http.post("/detokenize", json={"tokens": ids})
    return re.sub("<[^<> ]*>", " ", said.json()["prompt"]).split()


@pytest.fixture
def haproxy() -> str:
    """The program; in CI a missing one is a failure, elsewhere a skip."""
    # Distributions put it where only root's PATH leads.
    found = shutil.which("haproxy", path=f"{os.environ.get('PATH', os.defpath)}:/usr/sbin")
    if found is None and os.environ.get("CI"):
        pytest.fail("CI must install it first: haproxy")
    return found or pytest.skip("missing here: haproxy")


async def test_conversations_survive_drains_kills_and_restarts_behind_haproxy(tmp_path, haproxy):
    """Each stays on its worker while it can, moves alone when it must, and is answered right."""
    async with fleet(haproxy, tmp_path, WITHIN_S) as routed:
        many = talks("day", 2)
        await they_stay_where_they_are(routed, many)
        await side_requests_are_not_pinned(routed, many)
        many += await a_soft_drain_moves_nobody(routed, many)
        await a_kill_moves_its_own_alone(routed, many)
        many += await a_worker_comes_back_to_new_conversations(routed, many)
        await what_a_draining_worker_does_not_know_goes_elsewhere(routed, many)
        await a_full_queue_is_told_to_its_client(routed)
        await a_stop_lets_its_answers_finish(routed, many)
        await without_workers_the_router_says_so(routed)
        await every_answer_is_that_of_a_quiet_worker(routed, many)
