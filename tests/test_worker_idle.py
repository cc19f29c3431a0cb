"""The engine thread between two requests, and at its end. tests/test_worker.py has the rest."""

import trio
import trio.testing

from flashrt import worker
from flashrt.policy.auto_prefix import AutoPrefixPolicy
from flashrt.policy.cuts import CutRule
from flashrt.policy.turn_loop import TurnLoop
from flashrt.tending import Tending
from flashrt.worker import EngineWorker
from tests.test_worker import MANY, Desk, outcome, running


async def test_parking_saves_the_live_state_and_ends_the_thread():
    """Also while the engine is idle; what is saved is the state of the newest answer's end."""
    desk = Desk()
    policy = AutoPrefixPolicy(max_seq=256, capsule_budget_bytes=1 << 20)
    desk.turns = TurnLoop(policy, CutRule(64))
    desk.worker = EngineWorker(desk.gate, desk.turns, max_queue_depth=8, ledger=desk.ledger)
    with trio.fail_after(20):
        async with trio.open_nursery() as nursery:
            await nursery.start(desk.worker.run)
            desk.gate.allow(MANY)
            ids, _ = await outcome(desk.submit())
            await trio.testing.wait_all_tasks_blocked()
            for entry in policy.store.entries():
                policy.store.drop(entry)
            await desk.worker.park(10.0)
    (entry,) = policy.store.entries()
    assert entry.position == 3 + len(ids) - 1
    assert desk.worker.alive


async def test_an_idle_engine_tends_until_nothing_is_left(monkeypatch):
    """Files are written while nobody asks; then it waits without looking."""
    left = [True, True, True, False]
    looks = trio.Event()

    class Tends(Tending):
        def between_requests(self):
            if len(left) == 1:
                trio.from_thread.run_sync(looks.set)
            return left.pop(0)

    monkeypatch.setattr(worker, "TEND_EVERY_S", 0.001)
    desk = Desk()
    desk.worker = EngineWorker(
        desk.gate, desk.turns, max_queue_depth=8, ledger=desk.ledger, tending=Tends(desk.turns)
    )
    async with running(desk):
        desk.gate.allow(MANY)
        await outcome(desk.submit())
        await looks.wait()
    assert left == []
