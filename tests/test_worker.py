"""The engine thread, with a real thread and a fake engine that moves when a test lets it."""

import threading
from contextlib import asynccontextmanager

import pytest
import trio
import trio.testing

from flashrt import items, worker
from flashrt.chat.deltas import FinishReason
from flashrt.chat.prompt import Prompt
from flashrt.chat.request import AgentRequest
from flashrt.engine.fake import FakeEngine
from flashrt.engine.protocol import SamplingParams
from flashrt.errors import EngineFailed, QueueFull, Unavailable
from flashrt.fsm.lifecycle import Life
from flashrt.items import CancelToken, Failed, Finished, Output, WorkItem
from flashrt.metrics.ledger import Ledger
from flashrt.metrics.record import RequestRecord
from flashrt.policy.auto_prefix import AutoPrefixPolicy
from flashrt.policy.cuts import CutRule
from flashrt.policy.turn import Turn
from flashrt.policy.turn_loop import TurnLoop
from flashrt.worker import EngineWorker
from tests.answers import IdAnswer
from tests.gate import GatedPerformer

MANY = 10_000


class Desk:
    """A worker, its gate, and items made for it."""

    def __init__(
        self,
        *,
        max_queue_depth=8,
        queue_timeout_s=0.0,
        break_at=None,
        tidy=lambda: None,
        **engine,
    ):
        self.gate = GatedPerformer(FakeEngine(**engine), break_at)
        self.turns = TurnLoop(AutoPrefixPolicy(max_seq=256), CutRule(64))
        self.ledger = Ledger()
        self.worker = EngineWorker(
            self.gate,
            self.turns,
            max_queue_depth=max_queue_depth,
            queue_timeout_s=queue_timeout_s,
            ledger=self.ledger,
            tidy=tidy,
        )

    def item(self, prompt=(9, 9, 9), max_tokens=3, answer=None):
        cancel = CancelToken()
        answer = answer or IdAnswer(max_tokens)
        turn = Turn(Prompt.from_ids(prompt), SamplingParams(), answer, cancel)
        record = RequestRecord("r", created=0, enqueued_at=0.0)
        request = AgentRequest(model="m", ids=tuple(prompt))
        return WorkItem(request, turn.prompt, turn, record, cancel=cancel)

    def submit(self, **wish):
        item = self.item(**wish)
        self.worker.submit(item)
        return item


@asynccontextmanager
async def running(desk):
    """The worker runs while the block does."""
    with trio.fail_after(20):
        async with trio.open_nursery() as nursery:
            await nursery.start(desk.worker.run)
            yield desk
            nursery.cancel_scope.cancel()
            desk.gate.allow(MANY)


async def outcome(item):
    """Everything the sink gives: the ids, and the terminal event."""
    ids = []
    async for piece in item.sink:
        if isinstance(piece, Output):
            ids += piece.token_ids
        else:
            return ids, piece
    raise AssertionError("the sink closed without a terminal event")


def cold(prompt, max_tokens):
    engine, answer = FakeEngine(), IdAnswer(max_tokens)
    list(engine.prefill(prompt))
    for chunk in engine.decode(SamplingParams()):
        if answer.feed(chunk.tokens).ending:
            return answer.ids
    raise AssertionError


async def test_items_are_served_in_order_and_read_as_cold():
    """FIFO; each sink gets its whole answer and one Finished; each record its stamps in order."""
    async with running(Desk()) as desk:
        desk.gate.allow(MANY)
        items = [desk.submit(prompt=(9, i, 4), max_tokens=i + 1) for i in range(5)]
        for i, item in enumerate(items):
            assert await outcome(item) == (cold((9, i, 4), i + 1), Finished(FinishReason.LENGTH))
            record = item.record
            assert record.terminal_state is Life.DONE
            stamps = [record.enqueued_at, record.started_at, record.first_token_at]
            assert stamps == sorted(stamps)
            assert record.first_token_at <= record.finished_at
        starts = [item.record.started_at for item in items]
        assert starts == sorted(starts)
        assert desk.ledger.by_state["DONE"] == 5


async def test_a_record_that_is_closed_changes_no_more():
    """Its end's state is saved behind it; what was logged is what its client reads later."""
    reports = []

    class Noting(Ledger):
        def close(self, record):
            super().close(record)
            reports.append(record.report())

    desk = Desk()
    desk.turns = TurnLoop(AutoPrefixPolicy(max_seq=256, capsule_budget_bytes=1 << 20), CutRule(64))
    desk.ledger = Noting()
    desk.worker = EngineWorker(desk.gate, desk.turns, max_queue_depth=8, ledger=desk.ledger)
    async with running(desk):
        desk.gate.allow(MANY)
        items = [desk.submit(prompt=(9, i, 4)) for i in range(3)]
        for item in items:
            await outcome(item)
        while desk.ledger.capsules["stored"] <= sum(r["saved_capsules"] for r in reports):
            await trio.lowlevel.checkpoint()
    assert [item.record.report() for item in items] == reports


@pytest.mark.parametrize("max_tokens", range(1, 30, 4))
async def test_the_record_counts_the_drafts_that_stand(max_tokens):
    """Each step adds its accepted drafts and one id of its own, but an ending cuts drafts away."""
    async with running(Desk(burst_max=8)) as desk:
        desk.gate.allow(MANY)
        item = desk.submit(max_tokens=max_tokens)
        ids, _ = await outcome(item)
        report = item.record.report()
        own = len(ids) - report["spec_accepts"]
        assert len(ids) == max_tokens
        assert report["decode_steps"] - 1 <= own <= report["decode_steps"]
        assert sum(report["accepted_per_position"]) == report["spec_accepts"]
        assert set(report["drafters"]) <= {"fake"}


async def test_a_full_window_adds_no_step():
    """What was held back comes without ids: it is an output and no decode step."""
    async with running(Desk(max_seq=12)) as desk:
        desk.gate.allow(MANY)
        item = desk.submit(max_tokens=1000)
        ids, _ = await outcome(item)
        assert len(ids) == item.record.generation.decode_steps == 9


async def test_a_queued_item_whose_client_leaves_ends_at_once_and_is_never_started():
    """It is CANCELLED while the engine is still busy with another, and touches nothing."""
    async with running(Desk()) as desk:
        first, queued, last = desk.submit(), desk.submit(prompt=(8, 8)), desk.submit()
        desk.gate.allow(1)
        while desk.worker.running is not first:
            await trio.lowlevel.checkpoint()
        desk.worker.leave(queued)
        assert queued.life.state is Life.CANCELLED
        assert desk.worker.depth() == 1
        desk.gate.allow(MANY)
        assert (await outcome(first))[0] == (await outcome(last))[0] == cold((9, 9, 9), 3)
        assert queued.record.started_at is None
        assert desk.ledger.by_state == {"DONE": 2, "CANCELLED": 1}


@pytest.mark.parametrize("steps_before", [1, 2, 3, 5])
async def test_a_client_that_leaves_frees_the_engine_within_one_step(steps_before):
    """In prefill or decode: no further step is performed, nothing is hot, the next is cold."""
    async with running(Desk()) as desk:
        leaver = desk.submit(prompt=(9,) * 150, max_tokens=50)
        follower = desk.submit(prompt=(9,) * 150, max_tokens=4)
        desk.gate.allow(steps_before)
        while len(desk.gate.steps) < steps_before:
            await trio.lowlevel.checkpoint()
        leaver.sink.leave()
        desk.worker.leave(leaver)
        desk.gate.allow(1)
        while not leaver.over:
            await trio.lowlevel.checkpoint()
        assert leaver.life.state is Life.CANCELLED
        assert len(desk.gate.steps) <= steps_before + 1
        desk.gate.allow(MANY)
        assert (await outcome(follower))[0] == cold((9,) * 150, 4)
        assert follower.record.prefix_action == "rebuild"


async def test_a_fault_ends_its_own_item_and_nobody_else():
    """ERROR with what broke; the next item is served as cold."""
    async with running(Desk(break_at={3: RuntimeError("a lost row")})) as desk:
        desk.gate.allow(MANY)
        broken, next_ = desk.submit(), desk.submit()
        _, end = await outcome(broken)
        assert isinstance(end, Failed)
        assert isinstance(end.error, EngineFailed)
        assert "a lost row" in str(end.error)
        assert broken.life.state is Life.ERROR
        assert (await outcome(next_))[0] == cold((9, 9, 9), 3)


async def test_a_full_queue_refuses_and_left_items_hold_no_place():
    """The bound counts who waits, not who has left."""
    desk = Desk(max_queue_depth=2)
    waiting = [desk.submit(), desk.submit()]
    with pytest.raises(QueueFull, match="2 requests are waiting"):
        desk.submit()
    desk.worker.leave(waiting[0])
    desk.submit()
    assert desk.worker.depth() == 2


async def test_who_waits_too_long_is_refused_and_nobody_else(autojump_clock):
    """Each at its own time, as REJECTED with 503; who came later still waits."""
    desk = Desk(queue_timeout_s=30)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(desk.worker.expire)
        await trio.testing.wait_all_tasks_blocked()
        first = desk.submit()
        await trio.sleep(20)
        later = desk.submit()
        ids, end = await outcome(first)
        assert (ids, trio.current_time()) == ([], pytest.approx(30, abs=0.1))
        assert isinstance(end.error, Unavailable)
        assert "30 s" in end.error.message
        assert (first.life.state, later.life.state) == (Life.REJECTED, Life.QUEUED)
        assert desk.worker.depth() == 1
        desk.worker.leave(later)
        nursery.cancel_scope.cancel()
    assert desk.ledger.by_state == {"REJECTED": 1, "CANCELLED": 1}


async def test_places_in_the_queue_are_counted_by_client():
    """Whoever has left counts no more."""
    desk = Desk()
    items = [desk.item() for _ in range(3)]
    for item, waiter in zip(items, "aab", strict=True):
        item.waiter = waiter
        desk.worker.submit(item)
    assert [desk.worker.waiting_of(waiter) for waiter in "abc"] == [2, 1, 0]
    desk.worker.leave(items[0])
    assert desk.worker.waiting_of("a") == 1


async def test_a_reader_that_takes_nothing_ends_its_own_request(monkeypatch):
    """Its sink has a bound; then it is CANCELLED, nothing is hot, and the next one is served."""
    monkeypatch.setattr(items, "WAITING_MAX_BYTES", 2000)
    async with running(Desk()) as desk:
        desk.gate.allow(MANY)
        stalled, next_ = desk.submit(max_tokens=200), desk.submit()
        assert (await outcome(next_))[0] == cold((9, 9, 9), 3)
        assert stalled.life.state is Life.CANCELLED
        assert 0 < stalled.record.completion_tokens < 200
        _, end = await outcome(stalled)
        assert "does not read" in str(end.error)


async def test_leaving_is_idempotent_and_harmless_after_the_end():
    """A handler may say that it is done as often as it likes."""
    async with running(Desk()) as desk:
        desk.gate.allow(MANY)
        item = desk.submit()
        await outcome(item)
        for _ in range(2):
            item.sink.leave()
            desk.worker.leave(item)
        assert item.life.state is Life.DONE


async def test_a_stop_of_the_server_ends_every_item_once():
    """Running and queued items end as CANCELLED with a reason; no sink stays open."""
    desk = Desk()
    async with running(desk):
        items = [desk.submit(max_tokens=50), desk.submit()]
        desk.gate.allow(2)
        while len(desk.gate.steps) < 2:
            await trio.lowlevel.checkpoint()
    for item in items:
        _, end = await outcome(item)
        assert isinstance(end, Failed)
        assert item.life.state is Life.CANCELLED


class BuggyTurns(TurnLoop):
    """A bug of ours outside any turn."""

    def run(self, turn, perform):
        raise ZeroDivisionError("a bug in the loop itself")


async def test_a_dead_engine_thread_fails_all_items_and_refuses_new_ones():
    """Not a hang: those who wait are told at once, and /health can see it."""
    desk = Desk()
    desk.worker._turns = BuggyTurns(AutoPrefixPolicy(max_seq=256), CutRule(64))
    items = [desk.submit(), desk.submit()]
    with trio.fail_after(20), pytest.raises(ZeroDivisionError):
        await desk.worker.run()
    assert not desk.worker.alive
    assert [item.life.state for item in items] == [Life.ERROR, Life.ERROR]
    for item in items:
        assert isinstance((await outcome(item))[1], Failed)
    with pytest.raises(Unavailable):
        desk.submit()


class UnreadableEnding(IdAnswer):
    """A delivery that breaks: the ending has no counts to read."""

    def _end(self, reason, kept):
        ending = super()._end(reason, kept)
        object.__setattr__(ending, "reason", None)
        object.__delattr__(ending, "reasoning_tokens")
        return ending


@pytest.mark.parametrize("followers", [0, 1])
async def test_a_batch_that_cannot_be_delivered_is_a_fault_not_a_hang(followers):
    """A bug on the way to the sink stops the thread, also an idle one, and everybody is told."""
    desk = Desk()
    desk.gate.allow(MANY)
    items = [desk.submit(answer=UnreadableEnding(2))]
    items += [desk.submit() for _ in range(followers)]
    with trio.fail_after(20), pytest.raises(AttributeError):
        await desk.worker.run()
    assert all(item.over for item in items)
    assert not desk.worker.alive


@pytest.mark.parametrize(("every_s", "times"), [(3600.0, {1}), (0.0, {3, 4})])
async def test_memory_is_tidied_between_requests_now_and_then(every_s, times, monkeypatch):
    """On the engine thread, which nobody else then waits for; and not after each of many."""
    monkeypatch.setattr(worker, "TIDY_EVERY_S", every_s)
    tidied, inside = [], []
    desk = Desk(tidy=lambda: tidied.append((threading.get_ident(), *inside)))
    run = desk.turns.run

    def watched(*parts):
        inside.append("a request")
        try:
            yield from run(*parts)
        finally:
            inside.clear()

    monkeypatch.setattr(desk.turns, "run", watched)
    async with running(desk):
        desk.gate.allow(MANY)
        for _ in range(4):
            await outcome(desk.submit())
        assert len(tidied) in times
        (engine_thread,) = set(tidied)
        assert len(engine_thread) == 1
        assert engine_thread != (threading.get_ident(),)
