"""Random walks: whatever happens around it, a turn reads as if it had run alone and cold."""

import attrs
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)

from flashrt.chat.prompt import Prompt
from flashrt.engine.fake import FakeEngine
from flashrt.engine.protocol import SamplingParams
from flashrt.errors import OutOfMemory
from flashrt.fsm.boundary import Boundary
from flashrt.fsm.lifecycle import LifeEvent
from flashrt.policy.auto_prefix import AutoPrefixPolicy
from flashrt.policy.cuts import CutRule
from flashrt.policy.lineage import end
from flashrt.policy.prefix import Action
from flashrt.policy.steps import Moving, Performer, Restore, Save, Step, StepResult, Weigh
from flashrt.policy.turn import Answered, Ended, Planned, Prefilled, Saved, Turn
from flashrt.policy.turn_loop import TurnLoop
from tests.answers import IdAnswer

VOCAB = 24
MAX_SEQ = 200
STOPS = frozenset({0, 1})


class Flag:
    """A cancel token that a walk sets."""

    cancelled = False


CACHE_STEPS = Weigh | Save | Restore | Moving
"""What may fail without a request's noticing (G8)."""


class EngineBroke(Exception):
    """A planned fault of the engine."""


@attrs.define(eq=False)
class Request:
    """One turn, what it asked for, and what came of it."""

    prompt: tuple[int, ...]
    max_tokens: int
    seed: int
    namespace: str
    stop_pair: tuple[int, int] | None = None
    draft_tokens: int | None = None
    hint: str | None = None
    pin_prefix: int | bool | None = None
    cancel: Flag = attrs.field(factory=Flag)
    output: list[int] = attrs.field(factory=list)
    plan: Planned | None = None
    ended: Ended | None = None

    @property
    def sampling(self) -> SamplingParams:
        return SamplingParams(
            temperature=1.0 if self.seed else 0.0,
            seed=self.seed,
            stop_ids=STOPS,
            draft_tokens=self.draft_tokens,
        )

    @property
    def answer(self) -> IdAnswer:
        return IdAnswer(self.max_tokens, STOPS, self.stop_pair)

    def turn(self) -> Turn:
        return Turn(
            prompt=Prompt.from_ids(self.prompt),
            sampling=self.sampling,
            answer=self.answer,
            cancel=self.cancel,
            namespace=self.namespace,
            session_hint=self.hint,
            pin_prefix=self.pin_prefix,
        )


def cold_run(request: Request) -> list[int]:
    """The oracle: a fresh engine, the same ids, nothing in between."""
    engine, answer = FakeEngine(vocab_size=VOCAB, max_seq=MAX_SEQ), request.answer
    for _ in engine.prefill(request.prompt):
        pass
    for chunk in engine.decode(request.sampling):
        if answer.feed(chunk.tokens).ending is not None:
            break
    return answer.ids


class TurnLoopWalk(RuleBasedStateMachine):
    """New chats, next messages, edits, retries, cancels and faults at any step."""

    requests = Bundle("requests")

    @initialize(
        burst_max=st.sampled_from([1, 4, 64]),
        chunk=st.sampled_from([64, 128]),
        budget=st.sampled_from([0, 600, 2_000, 6_000, 10**6]),
    )
    def start(self, burst_max, chunk, budget):
        self.budget = budget
        self.engine = FakeEngine(vocab_size=VOCAB, max_seq=MAX_SEQ, burst_max=burst_max)
        self.performer = Performer(self.engine)
        rule = CutRule(chunk, system_open=(2,), turn_end=(3, 4))
        policy = AutoPrefixPolicy(max_seq=MAX_SEQ, capsule_budget_bytes=budget)
        self.loop = TurnLoop(policy, rule)
        self.seen: list[Request] = []
        self.exit_was_clean = False

    prompts = st.one_of(
        st.lists(st.integers(2, VOCAB - 1), min_size=1, max_size=12),
        st.lists(st.integers(2, VOCAB - 1), min_size=60, max_size=140),
        st.builds(lambda a, b: [2, *a, 3, 4, *b], *[st.lists(st.integers(5, 9), max_size=20)] * 2),
    )
    wants = st.fixed_dictionaries(
        {
            "max_tokens": st.sampled_from([1, 2, 3, 5, 8, 12, 12, 70]),
            "draft_tokens": st.sampled_from([None, None, 0, 2, 63]),
            "seed": st.sampled_from([0, 0, 7]),
            "namespace": st.sampled_from(["a", "a", "b"]),
            "hint": st.sampled_from([None, None, "s", "t"]),
            "pin_prefix": st.sampled_from([None, None, None, True, False, 10, 70]),
        }
    )
    trouble = st.one_of(
        st.none(),
        st.none(),
        st.tuples(st.sampled_from(["cancel", "fault", "no memory"]), st.integers(0, 12)),
        st.tuples(st.just("cache fault"), st.integers(0, 2)),
    )

    @rule(target=requests, prompt=prompts, wants=wants, trouble=trouble)
    def new_chat(self, prompt, wants, trouble):
        return self.serve(Request(tuple(prompt), **wants), trouble)

    @rule(target=requests, earlier=requests, more=prompts, wants=wants, trouble=trouble)
    def next_message(self, earlier, more, wants, trouble):
        prompt = (*earlier.prompt, *earlier.output, *more)[: MAX_SEQ - 1]
        return self.serve(Request(prompt, **wants), trouble)

    @rule(
        target=requests,
        earlier=requests,
        keep=st.integers(-3, 14),
        wants=wants,
        trouble=trouble,
    )
    def edit_and_resend(self, earlier, keep, wants, trouble):
        """A cut of an earlier prompt and answer: also the plain retry, and the equal prompt."""
        whole = (*earlier.prompt, *earlier.output)
        prompt = whole[: max(1, len(earlier.prompt) + keep)][: MAX_SEQ - 1]
        return self.serve(Request(prompt, **wants), trouble)

    @rule(target=requests, earlier=requests, trouble=trouble)
    def resend(self, earlier, trouble):
        again = Request(earlier.prompt, earlier.max_tokens, earlier.seed, earlier.namespace)
        return self.serve(again, trouble)

    @rule(target=requests, earlier=requests, at=st.one_of(st.integers(0, 8), st.integers(40, 60)))
    def ask_with_a_stop_pair(self, earlier, at):
        """Two ids that the answer will really contain end it, inside or across a burst."""
        longer = attrs.evolve(
            earlier,
            max_tokens=at + 4,
            cancel=Flag(),
            output=[],
            plan=None,
            ended=None,
            stop_pair=None,
        )
        text = cold_run(longer)
        longer.stop_pair = tuple(text[at : at + 2]) if len(text) > at + 1 else None
        return self.serve(longer, None)

    def serve(self, request, trouble):
        steps = cache_steps = 0

        def perform(step: Step) -> StepResult:
            nonlocal steps, cache_steps
            steps += 1
            if isinstance(step, CACHE_STEPS):
                cache_steps += 1
                if trouble == ("cache fault", cache_steps):
                    raise EngineBroke
            elif trouble == ("fault", steps):
                raise EngineBroke
            elif trouble == ("no memory", steps):
                raise OutOfMemory("a planned want of memory")
            result = self.performer.perform(step)
            if trouble == ("cancel", steps):
                request.cancel.cancelled = True
            return result

        request.cancel.cancelled = trouble == ("cancel", 0)
        for events in self.loop.run(request.turn(), perform):
            self.note(request, events)
        self.seen.append(request)
        assert request.ended is not None, "every turn ends"
        if trouble is None or trouble[0] == "cache fault":
            assert request.ended.event is LifeEvent.FINISH, request.ended
        self.exit_was_clean = request.ended.event is LifeEvent.FINISH
        self.check_words(request)
        return request

    def note(self, request, events):
        for event in events:
            kept_for_later = isinstance(event, Saved)
            assert request.ended is None or kept_for_later, "nothing comes after the end"
            match event:
                case Planned():
                    request.plan = event
                    self.check_reuse(event)
                case Prefilled():
                    assert tuple(self.engine.journal) == request.prompt
                case Answered():
                    request.output += event.tokens
                    assert event.accepted <= min(event.drafted, len(event.tokens))
                    if request.draft_tokens is not None:
                        assert event.drafted <= request.draft_tokens
                case Ended():
                    request.ended = event

    def check_reuse(self, planned):
        """G5: what is reported as cached is in the state, and heads the prompt."""
        plan = planned.plan
        if plan.action is not Action.REBUILD:
            assert 0 < plan.cached_tokens == self.engine.position
            assert (
                tuple(self.engine.journal[: plan.cached_tokens]) == plan.ids[: plan.cached_tokens]
            )

    def check_words(self, request):
        want = cold_run(request)
        if request.ended.event is LifeEvent.FINISH:
            assert request.output == want
            assert request.ended.ending.sampled_tokens == len(want)
        else:
            assert request.output == want[: len(request.output)]

    @invariant()
    def hot_means_equal(self):
        """COMMITTED if and only if the exit was clean; then engine and policy agree on every id."""
        hot = self.loop.policy.hot and self.loop.policy.hot.journal
        assert (self.loop.boundary.state is Boundary.COMMITTED) == self.exit_was_clean
        assert (hot is not None) == self.exit_was_clean
        assert self.loop.boundary.state in (Boundary.COMMITTED, Boundary.NOTHING)
        if hot is not None:
            assert tuple(hot.ids) == tuple(self.engine.journal)
            assert hot.processed == self.engine.position == end(hot.lineage)

    @invariant()
    def the_store_holds_what_it_says(self):
        """Within its budget; and each capsule is the state that its key, ids and lineage name."""
        store = self.loop.policy.store
        assert store.footprint() <= self.budget
        for entry in store.entries():
            fresh = FakeEngine(vocab_size=VOCAB, max_seq=MAX_SEQ)
            fresh.restore(entry.capsule)
            assert tuple(fresh.journal) == entry.capsule.tokens
            assert fresh.position == entry.capsule.position == end(entry.lineage)


@pytest.mark.parametrize("examples", [100, pytest.param(3000, marks=pytest.mark.slow)])
def test_every_turn_reads_as_cold(examples):
    """Reuse, faults and cancels never change a token against cold's (G2, G4, G5, G7)."""
    run_state_machine_as_test(
        TurnLoopWalk,
        settings=settings(max_examples=examples, stateful_step_count=25, deadline=None),
    )
