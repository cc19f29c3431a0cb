"""Random walks over turns and session calls, against a model that knows only lists of ids.

In the model a session is the transcripts at which its turns ended. What the server says of a
session, and what each turn says, follows from them, whatever was displaced, lost or broken.
"""

import attrs
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)

from flashrt.engine.fake import FakeEngine
from flashrt.engine.protocol import SamplingParams, pack_ids
from flashrt.errors import Conflict, NotFound
from flashrt.fsm.boundary import Boundary
from flashrt.policy.steps import Restore, Save, Weigh
from flashrt.policy.turn import Planned
from tests.policy.calling import Agent
from tests.policy.turns import Flag, Server, opening, said

LONGEST, MOST = 400, 12
CACHE_STEPS = (Weigh, Save, Restore)
SYSTEM = opening(1, 2)

words = st.lists(st.integers(3, 40), min_size=1, max_size=6).map(lambda ids: said(*ids))
choices = st.integers(0, 1000)
faults = st.sampled_from([0, 0, 0, 1, 2])


class PlannedFaultError(Exception):
    """A step of the cache fails."""


@attrs.define
class Model:
    """The transcripts at which the turns of a session ended, its newest prompt, its namespace."""

    namespace: str
    ends: list[tuple[int, ...]] = attrs.field(factory=list)
    prompt: tuple[int, ...] = ()

    @property
    def transcript(self) -> tuple[int, ...]:
        return self.ends[-1] if self.ends else ()

    def lengths(self) -> list[int]:
        """Processed ids at each boundary: all but the newest id of an answer."""
        return [0, *(len(end) - 1 for end in self.ends)]


def cold(prompt, length):
    """The oracle: a fresh engine, the same ids."""
    engine, ids = FakeEngine(vocab_size=64, max_seq=4096), []
    list(engine.prefill(prompt))
    for chunk in engine.decode(SamplingParams()):
        ids += chunk.tokens
        if len(ids) >= length:
            return tuple(ids[:length])
    raise AssertionError("the window is full")


class SessionsWalk(RuleBasedStateMachine):
    """Create, say, edit, regenerate, fork, undo and delete, with faults of the cache."""

    @initialize(
        budget=st.sampled_from([0, 700, 3_000, 10**9]),
        host=st.sampled_from([0, 700, 10**9]),
    )
    def start(self, budget, host):
        self.server = Server(budget, host=host)
        self.agents = {name: Agent(self.server, name) for name in "ab"}
        self.models: dict[str, Model] = {}
        self.deleted: list[tuple[str, Model]] = []

    def failing(self, at):
        """Steps of which the `at`th of the cache fails; 0: none."""
        seen = 0

        def perform(step):
            nonlocal seen
            if isinstance(step, CACHE_STEPS):
                seen += 1
                if seen == at:
                    raise PlannedFaultError
            return self.server.performer.perform(step)

        return perform

    def pick(self, choice):
        """A session; there is always one."""
        if not self.models:
            self.create("a")
        return sorted(self.models.items())[choice % len(self.models)]

    def turn(self, name, prompt, keeps, fault=0, length=3):
        """A turn in the session `name`, which keeps its first boundaries."""
        model = self.models[name]
        if len(prompt) > LONGEST:
            return
        served = self.server.serve(
            prompt, length, namespace=model.namespace, hint=name, perform=self.failing(fault)
        )
        assert served.ids == cold(prompt, length)
        assert served.of(Planned)[0].session == name
        assert served.plan.cached_tokens + len(served.plan.new_ids) == len(prompt)
        model.ends = [*model.ends[:keeps], (*prompt, *served.ids)]
        model.prompt = prompt

    # -- what happens ----------------------------------------

    @rule(namespace=st.sampled_from("aab"))
    def create(self, namespace):
        if len(self.models) >= MOST:
            return
        report = self.agents[namespace].create()
        self.models[report.name] = Model(namespace)

    @rule(choice=choices, text=words, fault=faults)
    def say(self, choice, text, fault):
        name, model = self.pick(choice)
        self.turn(name, (*(model.transcript or SYSTEM), *text), len(model.ends), fault)

    @rule(choice=choices, text=words)
    def say_without_a_name(self, choice, text):
        """By content it is the turn of one that stands there, or of a new one."""
        _, model = self.pick(choice)
        prompt = (*(model.transcript or SYSTEM), *text)
        if len(prompt) > LONGEST:
            return
        served = self.server.serve(prompt, namespace=model.namespace)
        assert served.ids == cold(prompt, 3)
        name = served.of(Planned)[0].session
        if name not in self.models:
            self.agents[model.namespace].delete(name)
            return
        mine = self.models[name]
        assert mine.namespace == model.namespace
        kept = [end for end in mine.ends if prompt[: len(end) - 1] == end[:-1]]
        assert len(kept) >= len(mine.ends) - 1
        mine.ends = [*kept, (*prompt, *served.ids)]
        mine.prompt = prompt

    @rule(choice=choices, back=st.integers(0, 3), text=words, fault=faults)
    def edit(self, choice, back, text, fault):
        """Another message behind an earlier answer."""
        name, model = self.pick(choice)
        back = min(back, len(model.ends))
        kept = model.ends[: len(model.ends) - back]
        prompt = (*(kept[-1] if kept else SYSTEM), *text)
        left = model.transcript[: len(prompt)] != prompt[: len(model.transcript)]
        if not left and back:
            return
        self.turn(name, prompt, len(kept), fault)

    @rule(choice=choices, length=st.integers(2, 5), fault=faults)
    def regenerate(self, choice, length, fault):
        name, model = self.pick(choice)
        if not model.prompt:
            return
        self.turn(name, model.prompt, len(model.ends) - 1, fault, length)

    @rule(choice=choices, text=words)
    def say_and_leave(self, choice, text):
        """Nothing of a turn that was cancelled stands in the session."""
        name, model = self.pick(choice)
        prompt = (*(model.transcript or SYSTEM), *text)
        flag = Flag()

        def perform(step):
            flag.cancelled = True
            return self.server.performer.perform(step)

        self.server.serve(
            prompt, namespace=model.namespace, hint=name, cancel=flag, perform=perform
        )

    @rule(choice=choices, count=st.integers(1, 4), at=choices, fault=faults)
    def fork(self, choice, count, at, fault):
        name, model = self.pick(choice)
        if len(self.models) + count > MOST:
            return
        turns = at % (len(model.ends) + 1)
        agent = self.agents[model.namespace]
        before = agent.show(name)
        for report in agent.fork(name, count, self.failing(fault), turns=turns):
            ends = model.ends[: len(model.ends) - turns]
            self.models[report.name] = Model(model.namespace, list(ends))
            assert report.parent == name
        after = agent.show(name)
        assert (
            attrs.evolve(
                after,
                states=before.states,
                boundaries=before.boundaries,
                next_turn=before.next_turn,
                used_at=before.used_at,
                reusable_tokens=before.reusable_tokens,
            )
            == before
        )

    @rule(choice=choices, at=choices, by=st.sampled_from(["turns", "tokens"]), fault=faults)
    def undo(self, choice, at, by, fault):
        name, model = self.pick(choice)
        lengths = model.lengths()
        turns = at % len(lengths)
        mark = {"turns": turns} if by == "turns" else {"tokens": lengths[-1 - turns]}
        self.agents[model.namespace].undo(name, self.failing(fault), **mark)
        model.ends = model.ends[: len(model.ends) - turns]
        model.prompt = ()

    @rule(choice=choices, tokens=st.integers(0, 60))
    def undo_to_what_is_no_boundary(self, choice, tokens):
        name, model = self.pick(choice)
        if tokens in model.lengths():
            return
        with pytest.raises(Conflict, match="no boundary"):
            self.agents[model.namespace].undo(name, tokens=tokens)

    @rule(choice=choices)
    def delete(self, choice):
        name, model = self.pick(choice)
        self.agents[model.namespace].delete(name)
        del self.models[name]
        self.deleted.append((name, model))
        hot = self.server.policy.hot
        assert hot is None or hot.session.name != name

    @rule(choice=choices)
    def ask_in_another_namespace(self, choice):
        """G10: what is another's is not there, for whatever call."""
        name, model = self.pick(choice)
        stranger = self.agents["b" if model.namespace == "a" else "a"]
        for call in (stranger.show, stranger.fork, stranger.undo, stranger.delete):
            with pytest.raises(NotFound):
                call(name)

    # -- what holds ----------------------------------------

    @invariant()
    def sessions_stand_where_the_model_says(self):
        for name, model in self.models.items():
            report = self.agents[model.namespace].show(name)
            lengths = model.lengths()
            assert [end.tokens for end in report.boundaries] == lengths
            assert (report.tokens, report.turns) == (lengths[-1], len(model.ends))
            session = self.server.policy.sessions.get(name)
            assert tuple(session.journal.ids) == model.transcript
            for state in report.states:
                entry = self.server.policy.store.get(state.key)
                assert entry.namespace == model.namespace
                assert entry.begins_with(pack_ids(model.transcript[: state.tokens]))
            assert report.reusable_tokens <= report.tokens

    @invariant()
    def nothing_is_kept_for_the_deleted_alone(self):
        """A saved state is of a living session, or begins one; none bears a dead name."""
        living = [model.transcript for model in self.models.values()]
        dead = {name for name, _ in self.deleted}
        for entry in self.server.policy.store.entries():
            assert entry.session not in dead
            ids = entry.capsule.tokens[: entry.position]
            assert entry.session in self.models or any(t[: len(ids)] == ids for t in living)

    @invariant()
    def hot_means_equal(self):
        loop = self.server.loop
        hot = loop.policy.hot
        assert (hot is not None) == (loop.boundary.state is Boundary.COMMITTED)
        if hot is not None:
            assert tuple(hot.journal.ids) == tuple(self.server.engine.journal)


def test_sessions_are_what_the_model_says():
    """Any order of turns and calls, with small and large budgets of both memories."""
    run_state_machine_as_test(
        SessionsWalk, settings=settings(max_examples=20, stateful_step_count=25, deadline=None)
    )


@pytest.mark.slow
def test_sessions_are_what_the_model_says_for_long():
    """The same with more of it: about two minutes."""
    run_state_machine_as_test(
        SessionsWalk, settings=settings(max_examples=800, stateful_step_count=60, deadline=None)
    )
