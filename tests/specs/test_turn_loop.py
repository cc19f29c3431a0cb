"""The turn loop makes the moves of `specs/moves.md`, and no others."""

from collections import Counter
from collections.abc import Sequence

import attrs
import pytest

from flashrt.chat.prompt import Prompt
from flashrt.engine.fake import FakeEngine
from flashrt.engine.protocol import SamplingParams
from flashrt.fsm.boundary import BOUNDARY, Boundary, BoundaryEvent
from flashrt.fsm.lifecycle import Life, LifeEvent
from flashrt.fsm.moves import MOVES, Step
from flashrt.fsm.sink import SinkEvent, SinkState
from flashrt.fsm.table import Machine
from flashrt.policy.auto_prefix import AutoPrefixPolicy
from flashrt.policy.cuts import CutRule
from flashrt.policy.steps import Performer
from flashrt.policy.turn import (
    Answered,
    Ended,
    Pinned,
    Planned,
    Prefilled,
    Progressed,
    Saved,
    Turn,
    TurnEvent,
)
from flashrt.policy.turn_loop import TurnLoop
from tests.answers import IdAnswer
from tests.specs.product import Joint, Rules, Walk, may_be_taken

ENGINE_STEPS = {move.step for move in MOVES} - {Step.STALL, Step.RESUME, Step.LEAVE, Step.ADMIT}
LONG = (9,) * 150
"""Three calls of prefill at 64 tokens a call."""


@attrs.define
class Flag:
    """A cancel token."""

    cancelled: bool = False


class Recorded(Machine):
    """The boundary, with a list of what was fired."""

    def __init__(self) -> None:
        super().__init__(BOUNDARY)
        self.fired: list[BoundaryEvent] = []

    def fire(self, event: BoundaryEvent) -> Boundary:
        """Note the event, then move."""
        self.fired.append(event)
        return super().fire(event)


@attrs.frozen
class Trail:
    """What one turn fired: at the boundary, and at the request and its sink, each in order."""

    boundary: tuple[BoundaryEvent, ...]
    request: tuple[tuple[LifeEvent | None, SinkEvent | None], ...]


class Bench:
    """A turn loop on the fake engine that leaves trails."""

    def __init__(self, **engine: int) -> None:
        self.performer = Performer(FakeEngine(**engine))
        self.loop = TurnLoop(AutoPrefixPolicy(max_seq=256), CutRule(64))
        self.loop.boundary = self.boundary = Recorded()

    def serve(
        self,
        prompt: Sequence[int],
        answer: IdAnswer,
        *,
        cancel_at: int | None = None,
        fail_at: int | None = None,
        close_at: int | None = None,
    ) -> Trail:
        """Serve one request; what happens at a step's number happens while it is performed."""
        cancel, number = Flag(), 0

        def perform(step):
            nonlocal number
            number += 1
            cancel.cancelled = cancel.cancelled or number == cancel_at
            if number == fail_at:
                raise MemoryError("planted")
            return self.performer.perform(step)

        params = SamplingParams(stop_ids=answer.stop_ids)
        run = self.loop.run(Turn(Prompt.from_ids(prompt), params, answer, cancel), perform)
        self.boundary.fired.clear()
        fired = [(LifeEvent.START, None)]
        for batch in run:
            fired += [pair for event in batch for pair in pairs_of(event)]
            if close_at is not None and number >= close_at:
                run.close()
                fired.append((LifeEvent.CANCEL, SinkEvent.END))
        return Trail(tuple(self.boundary.fired), tuple(fired))


def pairs_of(event: TurnEvent) -> list[tuple[LifeEvent | None, SinkEvent | None]]:
    """What the worker fires for an event: at the request, and at its sink."""
    match event:
        case Planned() | Progressed() | Pinned() | Saved():
            return []
        case Prefilled():
            return [(LifeEvent.PREFILLED, None)]
        case Answered():
            return [(None, SinkEvent.DELTA)]
        case Ended(end):
            return [(end, SinkEvent.END)]
    raise AssertionError(event)


def spelled(trail: Trail, start: Boundary) -> list[Step] | None:
    """The moves that fire exactly this trail, from a queued request; None if there are none."""
    walk = Walk(Rules(), Joint((Life.QUEUED,), (SinkState.OPEN,), start))
    waiting = [(walk.start, trail.boundary, trail.request, [])]
    while waiting:
        joint, boundary, request, steps = waiting.pop()
        if not boundary and not request:
            return steps
        for move in reversed(MOVES):  # so that the first one is tried first
            size = len(move.fires_boundary)
            pair = (move.fires_life, move.fires_sink)
            takes = pair != (None, None)
            if (
                move.step in ENGINE_STEPS
                and (size or takes)
                and boundary[:size] == move.fires_boundary
                and (not takes or request[:1] == (pair,))
                and may_be_taken(move, joint, 0)
            ):
                after = walk.take(move, joint, 0)
                rest = request[1:] if takes else request
                waiting.append((after, boundary[size:], rest, [*steps, move.step]))
    return None


def test_a_first_turn_is_a_rebuild():
    """Back to 0, cut by cut, burst by burst, and a clean end."""
    trail = Bench().serve(LONG, IdAnswer(2))

    steps = spelled(trail, Boundary.NOTHING)
    reading = [Step.START, Step.REBUILD, Step.READ, Step.CUT, Step.CUT, Step.PREFILLED]
    assert steps[:6] == reading
    # Whether a burst is shown before or after its commit does not show in a trail.
    assert Counter(steps[6:]) == {Step.BURST: 2, Step.SHOW: 2, Step.COMMIT: 2, Step.FINISH: 1}
    assert steps[-1] is Step.FINISH


def test_the_next_message_is_read_on_top():
    """An extension starts in COMMITTED and forgets nothing."""
    bench = Bench()
    bench.serve([9, 9], first := IdAnswer(3))

    trail = bench.serve([9, 9, *first.ids, 7], IdAnswer(1))

    assert spelled(trail, Boundary.COMMITTED)[:3] == [Step.START, Step.READ, Step.PREFILLED]


def test_an_exact_prompt_reads_nothing():
    """PREFILLED without a COMMIT: the boundary never left COMMITTED (M11)."""
    bench = Bench()
    bench.serve([9, 9, 8], first := IdAnswer(6))

    trail = bench.serve([9, 9, 8, *first.ids[:-1]], IdAnswer(1))

    assert spelled(trail, Boundary.COMMITTED)[:3] == [Step.START, Step.PREFILLED, Step.BURST]


def test_a_full_window_shows_what_was_held_back():
    """One last SHOW without a burst, then the clean end."""
    trail = Bench(max_seq=12).serve([9] * 5, IdAnswer(1000))

    steps = spelled(trail, Boundary.NOTHING)
    assert steps.count(Step.SHOW) == steps.count(Step.BURST) + 1 == steps.count(Step.COMMIT) + 1
    assert steps[-1] is Step.FINISH


@pytest.mark.parametrize("length", range(1, 20))
def test_an_end_inside_a_burst_is_committed(length: int):
    """Cut, rolled back and committed, never left LEADING."""
    steps = spelled(Bench(burst_max=6).serve([9, length], IdAnswer(length)), Boundary.NOTHING)

    assert steps[-2:] == [Step.COMMIT, Step.FINISH]


@pytest.mark.parametrize("number", range(1, 10))
@pytest.mark.parametrize(
    ("how", "last"),
    [("cancel_at", Step.CANCEL), ("fail_at", Step.FAIL), ("close_at", Step.ABANDON)],
)
def test_an_exit_at_any_step_is_one_of_the_moves(how: str, last: Step, number: int):
    """In prefill and in decode, at every step's end: an INVALIDATE and an END, together."""
    bench = Bench(burst_max=3)

    steps = spelled(bench.serve(LONG, IdAnswer(50), **{how: number}), Boundary.NOTHING)

    # To the trails, the server's stop and a client's leaving look the same but in LEADING.
    assert steps[-1] in ({last, Step.CANCEL} if last is Step.ABANDON else {last})
    assert bench.boundary.state is Boundary.NOTHING


def test_the_server_may_stop_while_a_rollback_waits():
    """Between the last burst and its rollback the boundary is LEADING: only ABANDON ends there."""
    for length in range(1, 20):
        bench = Bench(burst_max=6)
        trail = bench.serve([9, length], IdAnswer(length), close_at=3)
        if bench.boundary.fired[-2] is BoundaryEvent.BURST:
            assert spelled(trail, Boundary.NOTHING)[-1] is Step.ABANDON
            return
    raise AssertionError("no burst was longer than its answer")


@pytest.mark.parametrize(
    "wrong",
    [
        lambda t: attrs.evolve(t, boundary=t.boundary[:-1]),
        lambda t: attrs.evolve(t, boundary=(*t.boundary, BoundaryEvent.BURST)),
        lambda t: attrs.evolve(t, request=t.request[:-1]),
        lambda t: attrs.evolve(t, request=(*t.request, t.request[-1])),
        lambda t: attrs.evolve(t, request=(t.request[0], (None, SinkEvent.DELTA), *t.request[1:])),
    ],
    ids=["no commit", "one burst more", "no end", "two ends", "a delta in prefill"],
)
def test_another_trail_is_not_spelled_by_any_moves(wrong):
    """The reading of trails can fail: one event more or less, and there are no moves for it."""
    trail = Bench().serve(LONG, IdAnswer(2))

    assert spelled(trail, Boundary.NOTHING) is not None
    assert not ends_well(wrong(trail))


def ends_well(trail: Trail) -> bool:
    """Whether the trail is spelled, and its last move ends the request."""
    steps = spelled(trail, Boundary.NOTHING)
    return steps is not None and steps[-1] in {Step.FINISH, Step.CANCEL, Step.FAIL, Step.ABANDON}
