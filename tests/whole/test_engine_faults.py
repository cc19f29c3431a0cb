"""A fault of the engine at any step costs the request it hits, and no later answer a token (G7)."""

import pytest

from flashrt.policy.steps import Performer, Restore, Save, Weigh
from tests.whole.server import running_server
from tests.whole.talk import PathRun, Talk, demo_engine, system, user, words

CACHE_STEPS = (Weigh, Save, Restore)
"""What may fail without the client's noticing."""

EVERY = range(1, 61)
SOME = (2, 46)


class FailsOnce(Performer):
    """Step number `at` fails: before it is done, or when it is."""

    def __init__(self, engine, at, *, done):
        super().__init__(engine)
        self.at, self.done, self.steps, self.failed = at, done, 0, None

    def perform(self, step):
        self.steps += 1
        if self.steps != self.at:
            return super().perform(step)
        self.failed = step
        if self.done:
            super().perform(step)
        raise RuntimeError("a planned fault")


@pytest.fixture(scope="module")
def engine():
    return demo_engine(max_seq=1024)


@pytest.fixture(scope="module")
def path_run():
    return PathRun(demo_engine(max_seq=1024))


async def sent(talk, *messages):
    """The answer, and whether it took a second try."""
    talk.messages += messages
    try:
        return await talk.send(), False
    except AssertionError as failure:
        if "engine_failed" not in str(failure):
            raise
        return await talk.send(), True


async def conversation(server):
    """Four turns: a long opening, one more, an edit of the first, and the second taken up again."""
    talk = Talk(server, [system(words(60, "s"))], {"max_tokens": 5})
    turns = [await sent(talk, user("first")), await sent(talk, user("second"))]
    edited = talk.branch(1)
    turns += [await sent(edited, user("another")), await sent(talk, user("third"))]
    return [answer for answer, _ in turns], sum(again for _, again in turns)


@pytest.mark.parametrize(
    "done",
    [
        pytest.param(False, id="before it is done"),
        pytest.param(True, id="when it is done", marks=pytest.mark.slow),
    ],
)
@pytest.mark.parametrize("steps", [SOME, pytest.param(EVERY, marks=pytest.mark.slow)], ids=len)
async def test_a_fault_at_any_step_is_one_error_and_the_next_answers_are_their_oracles(
    engine, path_run, steps, done
):
    """Steps of the cache fail unseen; all others are one 500, and the same body is served then."""
    kinds = set()
    for at in steps:
        performer = FailsOnce(engine, at, done=done)
        async with running_server(engine, performer=performer, chunk_tokens=64) as server:
            answers, again = await conversation(server)
            path_run.meets(*answers)
            totals = (await server.http.get("/health")).json()["totals"]["requests"]
        unseen = performer.failed is None or isinstance(performer.failed, CACHE_STEPS)
        assert again == (not unseen), (at, performer.failed)
        assert totals.get("ERROR", 0) == again
        assert totals["DONE"] == 4
        kinds.add(type(performer.failed))
    assert len(kinds) >= min(4, len(steps))


async def test_a_stream_that_fails_ends_with_an_error_event_and_without_done(engine):
    """After the first chunk no status can say it any more."""
    performer = FailsOnce(engine, 8, done=False)
    async with running_server(engine, performer=performer) as server:
        body = {"model": "m", "messages": [user("hi")], "stream": True, "max_tokens": 50}
        got = (await server.http.post("/v1/chat/completions", json=body)).text
    *_, last = [line for line in got.splitlines() if line]
    assert '"code":"engine_failed"' in last
    assert "[DONE]" not in got
