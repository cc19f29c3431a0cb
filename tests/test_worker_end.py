"""The engine thread behind an answer: first its client, then the turns to come."""

import trio

from flashrt import worker
from flashrt.fsm.lifecycle import Life
from flashrt.policy.auto_prefix import AutoPrefixPolicy
from flashrt.policy.cuts import CutRule
from flashrt.policy.steps import Save, Step, StepResult, Weigh
from flashrt.policy.turn_loop import TurnLoop
from flashrt.worker import EngineWorker
from tests.test_worker import MANY, Desk, cold, outcome, running


class Keeping(Desk):
    """Its store has room, so what an answer leaves is kept behind its end."""

    def __init__(self) -> None:
        super().__init__()
        policy = AutoPrefixPolicy(max_seq=256, capsule_budget_bytes=1 << 20)
        self.turns = TurnLoop(policy, CutRule(64))
        self.kept: list[Step] = []
        self.worker = EngineWorker(self, self.turns, max_queue_depth=8, ledger=self.ledger)

    @property
    def engine(self):
        return self.gate.engine

    def perform(self, step: Step) -> StepResult:
        if isinstance(step, Weigh | Save):
            self.kept.append(step)
        return self.gate.perform(step)


async def test_nothing_is_kept_of_an_answer_until_its_reader_has_the_end(monkeypatch):
    """Work for later turns would take the interpreter from the loop, which has a client to tell."""
    monkeypatch.setattr(worker, "GIVES_WAY_S", 20)
    async with running(Keeping()) as desk:
        desk.gate.allow(MANY)
        item = desk.submit()
        await outcome(item)
        kept = list(desk.kept)
        item.sink.leave()
        with trio.fail_after(10):  # sooner than it would give up waiting
            while not desk.ledger.capsules.get("stored"):
                await trio.lowlevel.checkpoint()
        assert (kept, desk.kept) == ([], [Weigh(), Save()])


async def test_a_reader_that_stays_behind_its_end_holds_nobody_up():
    """The wait for it is short: what its answer leaves is kept, and the next one is served."""
    async with running(Keeping()) as desk:
        desk.gate.allow(MANY)
        stays, next_ = desk.submit(), desk.submit(prompt=(9, 1, 4))
        assert (await outcome(next_))[0] == cold((9, 1, 4), 3)
        assert stays.life.state is Life.DONE
        assert desk.kept[:2] == [Weigh(), Save()]
