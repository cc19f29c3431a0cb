"""Which engine step comes next, and what its result means. The core without I/O.

`TurnLoop.turn` is a generator: it yields steps, is sent their results, and has a failed step's
exception thrown in. What the outside must know is collected as events, in order. Everything stops
at boundaries only (G3); how a turn leaves decides whether the live state may be attached to (G2):

    clean exit  ⇔  boundary COMMITTED  ⇔  the policy knows a hot journal
"""

from collections.abc import Callable, Generator
from typing import Protocol

import attrs

from flashrt.chat.deltas import Delta, Ending, Fed
from flashrt.chat.prompt import Prompt
from flashrt.engine.protocol import (
    ROLLBACK_MAX,
    Constraint,
    DecodeChunk,
    SamplingParams,
    TokenLogprobs,
)
from flashrt.errors import EngineFailed
from flashrt.fsm.boundary import BOUNDARY, Boundary, BoundaryEvent
from flashrt.fsm.lifecycle import LifeEvent
from flashrt.fsm.table import Machine
from flashrt.policy.auto_prefix import AutoPrefixPolicy
from flashrt.policy.cuts import CutRule
from flashrt.policy.prefix import Action, PrefixPlan
from flashrt.policy.steps import (
    Advance,
    Decode,
    DropPending,
    Prefill,
    Reset,
    Rollback,
    Step,
    StepResult,
)


class Cancellable(Protocol):
    """Something that may ask for the end at the next boundary."""

    @property
    def cancelled(self) -> bool:
        """Whether the end was asked for."""
        ...


class Answering(Protocol):
    """Turns sampled ids into deltas and says where the answer ends (`chat.answer.Answer`)."""

    def feed(self, tokens: tuple[int, ...]) -> Fed:
        """The deltas of one burst, and the ending if it lies in it."""
        ...

    def window_end(self) -> Fed:
        """The window is full: what was held back, and the ending."""
        ...


@attrs.frozen(eq=False)
class Turn:
    """What the loop must know to serve one request."""

    prompt: Prompt
    sampling: SamplingParams
    answer: Answering
    cancel: Cancellable
    namespace: str = ""
    constraint: Constraint | None = None


@attrs.frozen
class Planned:
    """The plan is made; nothing has been fed yet."""

    plan: PrefixPlan


@attrs.frozen
class Progressed:
    """Prefill stands at a cut: `position` tokens of the prompt are processed."""

    position: int


@attrs.frozen
class Prefilled:
    """The whole prompt is processed."""


@attrs.frozen
class Answered:
    """One accepted burst, cut at the ending if there is one.

    `drafted` ids were proposed for it; the first `accepted` of `tokens` are ids of the draft. No
    tokens: not a burst, only text that was held back.
    """

    deltas: tuple[Delta, ...]
    tokens: tuple[int, ...] = ()
    drafted: int = 0
    accepted: int = 0
    drafter: str = ""
    logprobs: tuple[TokenLogprobs, ...] = ()


@attrs.frozen
class Ended:
    """The one terminal event: FINISH with an ending, CANCEL, or FAIL with an error."""

    event: LifeEvent
    ending: Ending | None = None
    error: EngineFailed | None = None


TurnEvent = Planned | Progressed | Prefilled | Answered | Ended
Steps = Generator[Step, StepResult, None]


class _Cancelled(Exception):
    """The token was set; we stand at a boundary."""


class TurnLoop:
    """Serves one turn after the other on one engine. The engine thread's only view of policy."""

    def __init__(self, policy: AutoPrefixPolicy, cut_rule: CutRule) -> None:
        self.policy = policy
        self.cut_rule = cut_rule
        self.boundary = Machine(BOUNDARY)
        self._events: list[TurnEvent] = []
        self._ids: list[int] = []

    def run(
        self, turn: Turn, perform: Callable[[Step], StepResult]
    ) -> Generator[tuple[TurnEvent, ...], None, None]:
        """Drive one turn to its end; after each step, the events it caused.

        Closing this iterator early is an unclean exit.
        """
        steps = self.turn(turn)
        try:
            step = next(steps, None)
            while step is not None:
                yield self._take_events()
                step = _advance(steps, step, perform)
            yield self._take_events()
        finally:
            steps.close()
            self._events.clear()

    def turn(self, turn: Turn) -> Steps:
        """The steps of one turn. Ends in exactly one `Ended` event unless it is closed early."""
        clean = False
        ended = Ended(LifeEvent.CANCEL)
        try:
            yield from self._prefill(turn)
            ending, clean = yield from self._decode(turn)
            ended = Ended(LifeEvent.FINISH, ending=ending)
        except _Cancelled:
            pass
        except Exception as error:
            failure = EngineFailed(f"{type(error).__name__}: {error}")
            failure.__cause__ = error
            ended = Ended(LifeEvent.FAIL, error=failure)
        finally:
            if not clean:
                self._invalidate()
            self._events.append(ended)

    # -- the two halves of a turn ----------------------------------------

    def _prefill(self, turn: Turn) -> Steps:
        plan = self.policy.plan(turn.prompt, salt=turn.namespace)
        self._events.append(Planned(plan))
        if plan.action is Action.REBUILD:
            self._invalidate()
            yield Reset()
        self._ids = list(plan.ids)
        if plan.new_ids:
            yield from self._feed(turn, plan)
        else:
            yield DropPending()
            self.policy.on_commit(turn.namespace, self._ids, lookahead=0)
        self._events.append(Prefilled())

    def _feed(self, turn: Turn, plan: PrefixPlan) -> Steps:
        self._check(turn)
        self.boundary.fire(BoundaryEvent.PREFILL)
        self.policy.forget()
        step: Step = Prefill(plan.new_ids, self.cut_rule.cuts(plan.ids, plan.cached_tokens))
        while True:
            position = yield step
            assert isinstance(position, int), f"prefill ended before its last id: {position}"
            self._check(turn)
            if position == len(plan.ids):
                break
            self.boundary.fire(BoundaryEvent.CUT)
            self._events.append(Progressed(position))
            step = Advance()
        self._commit(turn, lookahead=0)

    def _decode(self, turn: Turn) -> Generator[Step, StepResult, tuple[Ending, bool]]:
        params = attrs.evolve(turn.sampling, output_start=len(self._ids))
        step: Step = Decode(params, turn.constraint)
        while True:
            self._check(turn)
            chunk = yield step
            if chunk is None:
                return self._window_end(turn), True
            assert isinstance(chunk, DecodeChunk), f"decode gave {chunk!r}"
            self.boundary.fire(BoundaryEvent.BURST)
            self._ids += chunk.tokens
            fed = turn.answer.feed(chunk.tokens)
            if fed.ending is not None:
                clean = yield from self._cut(turn, params.output_start, chunk, fed)
                return fed.ending, clean
            self._answered(fed, chunk, len(chunk.tokens))
            self._commit(turn, lookahead=1)
            step = Advance()

    def _cut(
        self, turn: Turn, output_start: int, chunk: DecodeChunk, fed: Fed
    ) -> Generator[Step, StepResult, bool]:
        """Bring the journal to what the ending lets stand; False if that is out of reach."""
        assert fed.ending is not None
        surplus = len(self._ids) - output_start - fed.ending.sampled_tokens
        self._answered(fed, chunk, len(chunk.tokens) - surplus)
        dropped = len(self._ids) - output_start - fed.ending.kept_tokens
        if dropped > ROLLBACK_MAX:
            return False
        if dropped:
            yield Rollback(dropped)
            del self._ids[-dropped:]
        self._commit(turn, lookahead=1)
        return True

    def _window_end(self, turn: Turn) -> Ending:
        fed = turn.answer.window_end()
        assert fed.ending is not None, "an answer that has no more room has not ended"
        self._events.append(Answered(fed.deltas))
        return fed.ending

    # -- bookkeeping ----------------------------------------

    def _answered(self, fed: Fed, chunk: DecodeChunk, stands: int) -> None:
        """The first `stands` ids of a burst are part of the answer; its last id was no draft."""
        accepted = min(stands, len(chunk.tokens) - 1)
        tokens, logprobs = chunk.tokens[:stands], chunk.logprobs[:stands]
        self._events.append(
            Answered(fed.deltas, tokens, chunk.drafted, accepted, chunk.drafter, logprobs)
        )

    def _commit(self, turn: Turn, *, lookahead: int) -> None:
        self.policy.on_commit(turn.namespace, self._ids, lookahead=lookahead)
        self.boundary.fire(BoundaryEvent.COMMIT)

    def _invalidate(self) -> None:
        self.policy.forget()
        self.boundary.fire(BoundaryEvent.INVALIDATE)

    def _check(self, turn: Turn) -> None:
        if turn.cancel.cancelled:
            raise _Cancelled

    def _take_events(self) -> tuple[TurnEvent, ...]:
        events = tuple(self._events)
        self._events.clear()
        return events

    @property
    def is_hot(self) -> bool:
        """Whether there is a live state to attach to."""
        return self.boundary.state is Boundary.COMMITTED


def _advance(steps: Steps, step: Step, perform: Callable[[Step], StepResult]) -> Step | None:
    """Perform one step and hand its result, or its exception, to the core."""
    try:
        try:
            result = perform(step)
        except Exception as error:
            return steps.throw(error)
        return steps.send(result)
    except StopIteration:
        return None
