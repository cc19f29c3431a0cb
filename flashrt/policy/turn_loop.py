"""Which engine step comes next, and what its result means. The core without I/O.

`TurnLoop.turn` is a generator: it yields steps, is sent their results, and has a failed step's
exception thrown in. What the outside must know is collected as events, in order. Everything stops
at boundaries only (G3); how a turn leaves decides whether the live state may be attached to (G2):

    clean exit  ⇔  boundary COMMITTED  ⇔  the policy knows a hot journal
"""

import math
from collections.abc import Generator, Mapping, Sequence

import attrs

from flashrt.chat.deltas import Ending, Fed
from flashrt.engine.protocol import ROLLBACK_MAX, DecodeChunk
from flashrt.errors import EngineFailed, OutOfMemory, Unavailable
from flashrt.fsm.boundary import BOUNDARY, Boundary, BoundaryEvent
from flashrt.fsm.lifecycle import LifeEvent
from flashrt.fsm.table import Machine
from flashrt.policy import lifting
from flashrt.policy.auto_prefix import AutoPrefixPolicy
from flashrt.policy.capsules import Entry
from flashrt.policy.clock import Clock, timeless
from flashrt.policy.cuts import CutRule
from flashrt.policy.driving import Batches, Perform, driven
from flashrt.policy.journal import Journal
from flashrt.policy.pinning import Pin
from flashrt.policy.prefix import Action, PrefixPlan
from flashrt.policy.saving import Saver, Spot
from flashrt.policy.sessions import Session
from flashrt.policy.spacing import Kind
from flashrt.policy.steps import (
    Advance,
    Decode,
    DropPending,
    Prefill,
    Reset,
    Rollback,
    Step,
    StepResult,
    Tell,
)
from flashrt.policy.turn import (
    Answered,
    Ended,
    Pinned,
    Planned,
    Prefilled,
    Progressed,
    Saved,
    Steps,
    Turn,
    TurnEvent,
    Work,
)


class _Cancelled(Exception):
    """The token was set; we stand at a boundary."""


@attrs.define(eq=False)
class _Run:
    """One turn under way: the request, its plan, and the journal that it writes."""

    turn: Turn
    plan: PrefixPlan
    session: Session
    journal: Journal
    pin: Pin
    answer_start: int = 0
    """The length of the journal before the answer's first id."""

    @property
    def asked(self) -> int:
        """Where the user's newest message ends in the ids as used; 0: nobody knows."""
        prompt = self.turn.prompt
        asked = prompt.outline.asked if prompt.outline is not None else 0
        return max(0, len(self.plan.used) - len(prompt) + asked) if asked else 0

    @property
    def messages(self) -> int | None:
        """How many have been exchanged when the answer is over; None: it is not made of any."""
        outline = self.turn.prompt.outline
        return None if outline is None else outline.messages + int(outline.parts[-1].closed)

    def spot(self, kind: Kind, length: int | None = None) -> Spot:
        """The boundary here, or the one at `length`."""
        here = self.journal.processed if length is None else length
        return Spot(self.session, self.journal, kind, here)


class TurnLoop:
    """Serves one turn after the other on one engine. The engine thread's only view of policy."""

    def __init__(
        self,
        policy: AutoPrefixPolicy,
        cut_rule: CutRule,
        clock: Clock = timeless,
    ) -> None:
        """`clock` decides when an answer has taken its time."""
        self.policy = policy
        self._clock = clock
        self.cut_rule = cut_rule
        self.boundary = Machine(BOUNDARY)
        self._events: list[TurnEvent] = []
        self._saver = Saver(policy.store, cut_rule, self._events)

    def run(self, turn: Turn, perform: Perform) -> Batches:
        """Drive one turn to its end; after each step, the events it caused.

        The last steps, behind the `Ended` event, keep the state for later turns. Closing this
        iterator before that event is an unclean exit.
        """
        return driven(self.turn(turn), self._events, perform)

    def turn(self, turn: Turn) -> Work:
        """The steps of one turn. Causes exactly one `Ended` event unless it is closed early."""
        clean, run = False, None
        ended = Ended(LifeEvent.CANCEL)
        try:
            run = yield from self._attach(turn)
            try:
                yield from self._prefill(run)
            except OutOfMemory:
                if not self.policy.store.shrink():
                    raise
                self.invalidate()
                self.policy.sessions.weigh(run.session)
                run = yield from self._attach(turn)
                yield from self._prefill(run)
            ending = yield from self._decode(run)
            ended, clean = Ended(LifeEvent.FINISH, ending=ending), self.is_hot
        except _Cancelled:
            yield from self._save_stopped(run)
        except OutOfMemory as error:
            self.policy.store.shrink()
            ended = Ended(LifeEvent.FAIL, error=_no_memory(error))
        except Exception as error:
            failure = EngineFailed(f"{type(error).__name__}: {error}")
            failure.__cause__ = error
            ended = Ended(LifeEvent.FAIL, error=failure)
        finally:
            if not clean:
                self.invalidate()
            self._events.append(ended)
        if run is not None:
            yield from self._kept(run, ended.ending)

    def _kept(self, run: _Run, ending: Ending | None) -> Work:
        """What later turns have of this one. Its client waits for its end, and nobody yet for this,
        so the end is told first."""
        try:
            yield Tell()
        finally:
            if ending is not None:
                self._noted(run, ending)
        if ending is not None and self.is_hot:
            yield from self._saver.save(run.spot(Kind.COMMITTED))
        self.policy.sessions.weigh(run.session)

    # -- to the state that the plan starts from --------------------------------------------------

    def _attach(self, turn: Turn) -> Generator[Step, StepResult, _Run]:
        """Bring the engine to the state that the plan attaches to. A capsule that cannot be
        restored is let go, and the next best plan is made (G8)."""
        if self.policy.expire():
            self.invalidate()
        while True:
            plan = self.policy.plan(
                turn.prompt, session_hint=turn.session_hint, salt=turn.namespace
            )
            if plan.parks:
                yield from self._park(plan)
            journal = yield from self._state_of(plan)
            if journal is not None:
                break
        boundary = self.cut_rule.last_turn_end(plan.used, ROLLBACK_MAX) or len(plan.used)
        session = self.policy.begin(plan, turn.prompt, boundary, turn.session_hint)
        self._events.append(Planned(plan, session.name))
        pin = Pin.of(turn.pin_prefix, plan, self.cut_rule, self.policy.store)
        return _Run(turn, plan, session, journal, pin)

    def _park(self, plan: PrefixPlan) -> Steps:
        """The live state is not gone on with: keep it for its own conversation."""
        hot = self.policy.hot
        if hot is not None:
            spot = Spot(hot.session, hot.journal, Kind.COMMITTED, hot.journal.processed)
            keep = () if plan.entry is None else (plan.entry,)
            yield from self._saver.save(spot, keep)

    def parked(self) -> Steps:
        """The live state is kept, because the engine is about to stop."""
        hot = self.policy.hot
        if hot is not None:
            spot = Spot(hot.session, hot.journal, Kind.COMMITTED, hot.journal.processed)
            yield from self._saver.save(spot)

    def _state_of(self, plan: PrefixPlan) -> Generator[Step, StepResult, Journal | None]:
        """The engine stands where the plan begins; None: its capsule could not be restored."""
        hot, entry = self.policy.hot, plan.entry
        if plan.action is Action.REBUILD:
            self.invalidate()
            yield Reset()
            return Journal()
        if entry is None:
            assert hot is not None, f"{plan.action} of nothing"
            return hot.journal.copy()
        return (yield from self.restored(entry, plan.used))

    def restored(
        self, entry: Entry, ids: Sequence[int]
    ) -> Generator[Step, StepResult, Journal | None]:
        """The engine becomes the state of `entry`, which has processed the first of `ids`; None: it
        could not be, and is let go. Until a commit nobody may attach to it."""
        self.invalidate()
        try:
            yield from lifting.restored(self.policy.store, entry)
        except Exception:
            self.policy.store.drop(entry, damaged=True)
            return None
        self.boundary.fire(BoundaryEvent.RESTORE)
        position, pending = entry.capsule.position, entry.capsule.pending
        written = ids[:position] if pending is None else (*ids[:position], pending)
        return Journal.of(written, position, entry.lineage)

    # -- the two halves of a turn ----------------------------------------------------------------

    def _prefill(self, run: _Run) -> Steps:
        self._pinned(run.pin.at_start())
        if run.plan.new_ids:
            yield from self._feed(run)
        else:
            yield DropPending()
            run.journal.drop_pending()
            self.policy.on_commit(run.session, run.journal, lookahead=0)
        self.policy.note_system(run.session, run.turn.prompt)
        self._events.append(Prefilled(run.journal.lineage))

    def _feed(self, run: _Run) -> Steps:
        plan, journal, ids = run.plan, run.journal, run.plan.used
        self._check(run)
        self.boundary.fire(BoundaryEvent.PREFILL)
        self.policy.forget()
        step: Step = Prefill(plan.new_ids, self.cut_rule.cuts(ids, plan.cached_tokens))
        while True:
            position = yield step
            assert isinstance(position, int), f"prefill ended before its last id: {position}"
            start = plan.cached_tokens if isinstance(step, Prefill) else journal.processed
            journal.feed(ids[start:position])
            if position == len(ids):
                break
            self.boundary.fire(BoundaryEvent.CUT)
            self._events.append(Progressed(position))
            yield from self._save_cut(run)
            self._check(run)
            step = Advance()
        self._commit(run, lookahead=0)
        yield from self._save_prompt(run)

    def _decode(self, run: _Run) -> Generator[Step, StepResult, Ending]:
        turn, start = run.turn, len(run.journal.ids)
        run.answer_start = start
        deadline = self._clock() + (turn.max_decode_ms or math.inf) / 1000
        params = attrs.evolve(turn.sampling, output_start=start)
        step: Step = Decode(params, turn.constraint)
        while True:
            self._check(run)
            chunk = yield step
            if chunk is None:
                return self._window_end(turn)
            assert isinstance(chunk, DecodeChunk), f"decode gave {chunk!r}"
            self.boundary.fire(BoundaryEvent.BURST)
            run.journal.sample(chunk.tokens)
            fed = turn.answer.feed(chunk.tokens)
            if fed.ending is not None:
                yield from self._cut(run, chunk, fed)
                return fed.ending
            self._answered(fed, chunk, len(chunk.tokens))
            self._commit(run, lookahead=1)
            if self._clock() >= deadline:
                return self._window_end(turn)
            step = Advance()

    def _cut(self, run: _Run, chunk: DecodeChunk, fed: Fed) -> Steps:
        """Bring the journal to what the ending lets stand, if that is within reach."""
        assert fed.ending is not None
        sampled = len(run.journal.ids) - run.answer_start
        self._answered(fed, chunk, len(chunk.tokens) - sampled + fed.ending.sampled_tokens)
        dropped = sampled - fed.ending.kept_tokens
        if dropped > ROLLBACK_MAX:
            return
        if dropped:
            yield Rollback(dropped)
            run.journal.roll_back(dropped)
        self._commit(run, lookahead=1)

    def _window_end(self, turn: Turn) -> Ending:
        fed = turn.answer.window_end()
        assert fed.ending is not None, "an answer that has no more room has not ended"
        self._events.append(Answered(fed.deltas))
        return fed.ending

    def _noted(self, run: _Run, ending: Ending) -> None:
        """The answer is whole: later turns know it, and stand behind it if its state is here."""
        shown = ending.kept_tokens if ending.shown_tokens is None else ending.shown_tokens
        try:
            ids = run.journal.ids[: run.answer_start + shown]
            ids.extend(ending.tail)
            if self.is_hot:
                run.session.commit(run.journal, run.messages)
            self.policy.finish(run.session, run.plan, run.turn.answer.visible, ids)
        except Exception as error:
            # The client has its end already, and a turn that goes on from here computes more.
            self.invalidate()
            self._events.append(Saved(error=f"{type(error).__name__}: {error}"))

    # -- capsules ----------------------------------------------------------------------------------

    def _save_cut(self, run: _Run) -> Steps:
        """At a cut of a prefill: what the spacing keeps, and what was asked to be pinned."""
        position = run.journal.processed
        kind = self._saver.kind_of_cut(run.plan.used, position, run.asked)
        pins = run.pin.cut == position
        if kind is not None or pins:
            yield from self._saver.save(run.spot(kind or Kind.CUT))
        if pins:
            self._pinned(run.pin.at_cut())

    def _save_prompt(self, run: _Run) -> Steps:
        """Before the generation prompt: taken by length from the block that is just done."""
        boundary = self.cut_rule.last_turn_end(run.plan.used, ROLLBACK_MAX)
        if boundary is not None and boundary > run.plan.cached_tokens:
            yield from self._saver.save(run.spot(Kind.PROMPT, boundary))

    def _save_stopped(self, run: _Run | None) -> Steps:
        """A cancelled prefill stands at a cut: a retry goes on from there."""
        if run is None or self.boundary.state is not Boundary.PREFILLING:
            return
        if run.journal.processed > run.plan.cached_tokens:
            yield from self._saver.save(run.spot(Kind.CUT))

    # -- bookkeeping -----------------------------------------------------------------------------

    def _pinned(self, report: Mapping[str, object] | None) -> None:
        if report is not None:
            self._events.append(Pinned(report))

    def _answered(self, fed: Fed, chunk: DecodeChunk, stands: int) -> None:
        """The first `stands` ids of a burst are part of the answer; its last id was no draft."""
        accepted = min(stands, len(chunk.tokens) - 1)
        tokens, logprobs = chunk.tokens[:stands], chunk.logprobs[:stands]
        self._events.append(
            Answered(fed.deltas, tokens, chunk.drafted, accepted, chunk.drafter, logprobs)
        )

    def _commit(self, run: _Run, *, lookahead: int) -> None:
        self.policy.on_commit(run.session, run.journal, lookahead=lookahead)
        self.boundary.fire(BoundaryEvent.COMMIT)

    def invalidate(self) -> None:
        """There is no live state to attach to any more."""
        self.policy.forget()
        self.boundary.fire(BoundaryEvent.INVALIDATE)

    def _check(self, run: _Run) -> None:
        if run.turn.cancel.cancelled:
            raise _Cancelled

    @property
    def is_hot(self) -> bool:
        """Whether there is a live state to attach to."""
        return self.boundary.state is Boundary.COMMITTED


def _no_memory(error: OutOfMemory) -> Unavailable:
    refusal = Unavailable(
        "There is not enough memory for this request, also without half of the saved states. Send "
        "a shorter prompt, or start the server with a smaller --capsule-budget-mb or --max-seq.",
        retry_after_s=1,
    )
    refusal.__cause__ = error
    return refusal
