"""The cancel matrix: wherever a request is, whatever its client does, however it is answered."""

import gc
from collections import Counter

import attrs
import pytest
import trio
import trio.testing

from flashrt.bench.soak.wire import Connection
from tests.whole.server import chat_body
from tests.whole.stage import RENDERER, Holdings, Stage, answer_of, cold_ids, open_files, staged
from tests.whole.watch import MANY, health, leaving, one_waits, states, until, until_states

LONG = "a long prompt that is cut several times, " * 20
SECOND = "a second request on the same connection"
SHORT, MOST = 40, 120
STALL_S, LONG_STALL_S = 0.5, 3.0
FILLING = 90
"""Tokens of an answer that fill all buffers on its way, and are not all of it."""

DONE = ("DONE", None)
OTHERS = 3
"""The friend's two turns, and the next request."""

OWN_END = 1
"""The client's descriptor, when the server has let go of its own."""

FATAL = ("close", "reset", "half-close", "pipelined, then close")
WAYS = (*FATAL, "stops reading", "pipelined")
PHASES = ("queued", "rendering", "prefill", "decode", "after the last token", "between requests")
UNDER_WAY = PHASES[:4]


@pytest.fixture(scope="module", autouse=True)
def _small_heap():
    """Everything that is there before is left out when sinks are looked for."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


@attrs.define
class Case:
    """One field of the matrix. `held`: what the request was told that it waited behind."""

    stage: Stage
    phase: str
    way: str
    streamed: bool
    client: Connection
    steps_seen: int = 0
    held: list = attrs.field(factory=list)

    @property
    def gives_up(self) -> bool:
        """Whether the request is cancelled: its client left it, or let a stream pile up."""
        return self.phase in UNDER_WAY and (
            self.way in FATAL or (self.way == "stops reading" and self.streamed)
        )

    @property
    def request(self) -> bytes:
        """A long prompt; where it is not read, the answer has hundreds of kilobytes."""
        wish = {"max_tokens": SHORT}
        if self.way == "stops reading" or self.phase == "after the last token":
            wish = {"max_tokens": MOST, "logprobs": True, "top_logprobs": 20}
        return self.stage.bytes_of(chat_body(LONG, stream=self.streamed, **wish))

    # -- to the phase ----------------------------------------

    async def reach(self, nursery: trio.Nursery) -> None:
        """Send the request, and stop the server where the phase is."""
        match self.phase:
            case "queued":
                nursery.start_soon(self._hold)
                await self.stage.steps(1)
                await self.client.send(self.request)
                await until(lambda: one_waits(self.stage.server))
            case "rendering":
                RENDERER.hold()
                await self.client.send(self.request)
                await until(self._is_rendering)
            case "prefill":
                await self.client.send(self.request)
                await self.stage.steps(3)
                await until(lambda: self._runs_in("PREFILL"))
            case "decode":
                await self.client.send(self.request)
                await self.stage.steps(3)
                while not await self._runs_in("DECODE"):
                    await self.stage.steps(1)
                await self.stage.steps(2)
            case "after the last token":
                await self.client.send(self.request)
                self.stage.gate.allow(MANY)
                await until_states(self.stage.server, DONE=2)
                await self.stage.until_idle()
            case "between requests":
                await self.client.send(self.request)
                self.stage.gate.allow(MANY)
                self.is_right(answer_of(await self.client.reply("POST")))
                await self.stage.until_idle()
        self.steps_seen = len(self.stage.gate.steps)

    async def _hold(self) -> None:
        self.held.append(await self.stage.ask([{"role": "user", "content": "holds it"}]))

    async def _is_rendering(self) -> bool:
        return (await health(self.stage.server))["activity"]["rendering"] == 1

    async def _runs_in(self, state: str) -> bool:
        running = (await health(self.stage.server))["running"]
        return running is not None and running["state"] == state

    # -- what the client does ----------------------------------------

    async def act(self) -> None:
        """The client does what it does."""
        if self.way.startswith("pipelined"):
            stray = self.way != "pipelined" and self.phase == "between requests"
            second = self.stage.bytes_of(chat_body(SECOND, stream=self.streamed))
            await self.client.send(second[:40] if stray else second)
        if self.way in FATAL:
            how = {"reset": "reset", "half-close": "half"}.get(self.way, "close")
            await self.client.leave(how)

    # -- what comes of it ----------------------------------------

    async def is_cancelled(self) -> None:
        """The engine is free within one step, and another's request has not noticed."""
        stage = self.stage
        if self.way == "stops reading":
            await self._fills_the_buffers()
        if self.phase == "rendering" and self.way in FATAL:
            await until(lambda: open_files() == stage.before.files)
            await trio.testing.wait_all_tasks_blocked()
            RENDERER.let_go()
        elif self.phase != "queued" or self.way == "stops reading":
            await until(lambda: leaving(stage.server))
            stage.gate.allow(1)
        done = (await states(stage.server))["DONE"]
        await until_states(stage.server, DONE=done, CANCELLED=1)
        steps = len(stage.gate.steps) - self.steps_seen
        assert steps <= (self.phase in ("prefill", "decode") or self.way == "stops reading")

    async def _fills_the_buffers(self) -> None:
        """The engine goes on, since the sink holds the answer, until the client is given up."""
        RENDERER.let_go()
        stage = self.stage
        if self.phase == "queued":
            while not self.held:
                await stage.steps(1)
        while not await self._runs_in("DECODE"):
            await stage.steps(1)
        await stage.steps(FILLING)
        self.steps_seen = len(stage.gate.steps)

    async def is_served(self) -> None:
        """What nobody gave up is answered to its end, whoever reads it."""
        RENDERER.let_go()
        self.stage.gate.allow(MANY)
        if self.way == "pipelined":
            if self.phase != "between requests":
                self.is_right(answer_of(await self.client.reply("POST")))
            self.is_right(answer_of(await self.client.reply("POST")))
        await self.stage.until_idle()

    async def afterwards(self) -> None:
        """The next request and the friend's conversation are as if nothing had been."""
        stage = self.stage
        stage.gate.allow(MANY)
        again = await stage.ask([{"role": "user", "content": LONG}])
        self.is_right(again)
        if self.phase in ("prefill", "decode") and self.gives_up:
            assert again["flashrt"]["prefix_action"] == "restore"
        await until(lambda: len(self.held) == (self.phase == "queued"))
        for answer in self.held:
            self.is_right(answer)
        processed = stage.friend_tokens - 1
        block = await stage.friend_asks("And in the spring?")
        self.is_right({"flashrt": block})
        assert block["cached_tokens"] == processed

    def is_right(self, answer) -> None:
        """It is what the cold run says."""
        block = answer["flashrt"]
        assert block["terminal_state"] == "DONE"
        assert block["completion_token_ids"] == cold_ids(block)


def _fields():
    """All fields of the matrix; each pair of phase and way is in the default suite once."""
    for row, phase in enumerate(PHASES):
        for column, way in enumerate(WAYS):
            for streamed in (False, True):
                marks = () if streamed == bool((row + column) % 2) else pytest.mark.slow
                answer = "streamed" if streamed else "buffered"
                yield pytest.param(phase, way, streamed, marks=marks, id=f"{phase}-{way}-{answer}")


@pytest.mark.parametrize(("phase", "way", "streamed"), list(_fields()))
async def test_a_client_that_leaves_frees_the_engine_and_touches_nothing_else(
    phase, way, streamed, tmp_path
):
    """The engine is free within one step, the request's end is the right one, the next answers are
    their oracles, and no task, file or sink is left."""
    # An answer that is to be whole may be written for longer than its client is waited for.
    patient = streamed and phase == "after the last token"
    stall_s = LONG_STALL_S if patient else STALL_S
    async with (
        staged(tmp_path / "requests.jsonl", stall_s) as stage,
        trio.open_nursery() as nursery,
    ):
        case = Case(stage, phase, way, streamed, await stage.connect())
        try:
            await case.reach(nursery)
            await case.act()
            await (case.is_cancelled() if case.gives_up else case.is_served())
            await case.afterwards()
            if way == "stops reading" and phase != "between requests":
                await until(lambda: open_files() == stage.before.files + OWN_END)
        finally:
            await case.client.leave()
        await until(lambda: Holdings.now() == stage.before)
        ends = [(line["terminal_state"], line["error_kind"]) for line in stage.lines()]

    end = ("CANCELLED", "client_left") if case.gives_up else DONE
    others = OTHERS + (phase == "queued") + (way == "pipelined")
    assert Counter(ends) == Counter([end] + [DONE] * others)
