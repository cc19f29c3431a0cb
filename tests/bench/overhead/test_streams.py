"""The comparison with a bare server, and what neighbours cost, on a server inside the test."""

from contextlib import asynccontextmanager

import pytest

from flashrt.bench.overhead import neighbours
from flashrt.bench.overhead.clocked import StepReader, StepWriter
from flashrt.bench.overhead.heard import Listener, chat
from flashrt.bench.overhead.paced import WORDS, ClockedPerformer, PacedEngine
from flashrt.bench.overhead.streams import compare, long_job, short_job
from tests.whole.server import VOICE, fake_engine, running_server

STEP_US = 3000


@asynccontextmanager
async def paced(folder):
    """The real server over the paced engine, and its steps."""
    steps = folder / "paced.steps"
    engine = PacedEngine(
        VOICE.tokenizer.encode(WORDS), vocab_size=VOICE.tokenizer.vocab_size, max_seq=20_000
    )
    performer = ClockedPerformer(engine, StepWriter(steps))
    async with running_server(engine, performer=performer) as server:
        yield server.place, StepReader(steps)


async def test_an_answers_own_time_is_what_was_asked_for(tmp_path):
    """Each token is a step of at least `seed` microseconds, and comes after its step has ended."""
    async with paced(tmp_path) as (place, steps):
        listener = await Listener.connect(place)
        steps.new()
        heard = await listener.hear(chat("hello", 6, seed=STEP_US))
        long_steps = [s for s in steps.new() if s.seconds >= STEP_US / 1e6]
        await listener.close()
    assert len(long_steps) == 6
    assert heard.sent_at < heard.head_at <= heard.at[0] < long_steps[0].end < heard.first_token_at
    assert heard.body.endswith(b"data: [DONE]\n\n")
    assert sum(heard.sizes) == len(heard.body)
    assert heard.first_token_ms(long_steps) < (heard.first_token_at - heard.sent_at) * 1000
    assert all(ms >= 0 for ms in heard.delivery_ms(long_steps))


@pytest.mark.parametrize("job", [short_job(5, STEP_US, 2), long_job(4, 5, 0, 2)])
async def test_both_servers_write_as_many_chunks_of_the_same_sizes(job, tmp_path):
    """The bare one is told ours; all figures are there, delivery only where there is a pace."""
    async with paced(tmp_path) as (place, steps):
        compared = await compare(place, steps, job, tmp_path)
    found = compared.report()
    assert found["chunks"] >= 3
    for name in ("request_to_first_byte", "request_to_first_token"):
        assert found[name]["ours_ms"] > 0
        assert found[name]["other_ms"] > 0
    assert (found["delivery"] is None) == (found["bare_delivery"] is None) == (job.step_us == 0)


async def test_health_is_probed_beside_running_requests_and_posted_bodies():
    """A figure of an idle server would say nothing."""
    async with running_server(fake_engine(max_seq=2048)) as server:
        found = await neighbours.health(server.place, 10)
    assert found.quiet.count == found.streams.count == 10
    assert found.bodies.count >= 10
    assert found.running >= 10
    assert found.bodies_posted >= 1


async def test_the_first_token_behind_an_answer_takes_as_long_as_that_answer(tmp_path):
    """Both clients wait for all of it: 100 steps of 3 ms at least, less what was over by then."""
    async with paced(tmp_path) as (place, _):
        pair = await neighbours.stopped_reader(place, 100, STEP_US, 1)
    assert pair.ours_ms > 100
    assert pair.other_ms > 100
