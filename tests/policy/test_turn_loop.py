"""The turn loop, step by step; tests/walks holds the random walks."""

import pytest

from flashrt.chat.prompt import Prompt
from flashrt.engine.fake import FakeEngine
from flashrt.engine.protocol import DecodeChunk, SamplingParams
from flashrt.fsm.boundary import Boundary
from flashrt.fsm.lifecycle import LifeEvent
from flashrt.policy.auto_prefix import AutoPrefixPolicy
from flashrt.policy.cuts import CutRule
from flashrt.policy.prefix import Action
from flashrt.policy.steps import Advance, Decode, Performer, Prefill, Restore, Save, Weigh
from flashrt.policy.turn import Answered, Ended, Planned, Prefilled, Progressed, Saved, Turn
from flashrt.policy.turn_loop import TurnLoop
from tests.answers import IdAnswer
from tests.policy.turns import Server, opening, said


class Flag:
    """A cancel token."""

    cancelled = False


class Bench:
    """A loop on a fake engine, and one turn at a time on it."""

    def __init__(self, **engine):
        self.engine = FakeEngine(**engine)
        self.performer = Performer(self.engine)
        self.loop = TurnLoop(AutoPrefixPolicy(max_seq=256), CutRule(64))

    def serve(self, prompt, answer, cancel=None, perform=None, **sampling):
        turn = Turn(
            prompt=Prompt.from_ids(prompt),
            sampling=SamplingParams(stop_ids=getattr(answer, "stop_ids", frozenset()), **sampling),
            answer=answer,
            cancel=cancel or Flag(),
        )
        batches = self.loop.run(turn, perform or self.performer.perform)
        return [event for batch in batches for event in batch]


def test_events_come_in_the_order_of_the_life_of_a_request():
    """Planned, progress at each cut, prefilled, the bursts, one end."""
    events = Bench().serve([5] * 150, IdAnswer(3))
    kinds = [type(event) for event in events]
    assert kinds == [Planned, Progressed, Progressed, Prefilled, *[Answered] * 3, Ended]
    assert [e.position for e in events if isinstance(e, Progressed)] == [64, 128]
    assert events[-1].event is LifeEvent.FINISH


def test_an_ending_inside_a_burst_is_cut_exactly_there():
    """Length inside a burst: the journal keeps what was answered, and the session stays hot."""
    bench = Bench(burst_max=6)
    for length in range(1, 30):
        bench.serve([9, 9, length], answer := IdAnswer(length))
        assert bench.loop.is_hot
        assert tuple(bench.engine.journal) == (9, 9, length, *answer.ids)
        assert bench.engine.position == len(bench.engine.journal) - 1


def test_a_stop_pair_leaves_only_the_visible_ids():
    """Rolled back to the last visible id; at least one id stays, as the pending one."""
    bench = Bench(burst_max=6)
    bench.serve([9, 9], whole := IdAnswer(20))
    for at in range(10):
        bench = Bench(burst_max=6)
        bench.serve([9, 9], answer := IdAnswer(20, stop_pair=tuple(whole.ids[at : at + 2])))
        visible = answer.ids[:-2] or answer.ids[:1]
        assert tuple(bench.engine.journal) == (9, 9, *visible)
        assert list(bench.loop.policy.hot.journal.ids) == [9, 9, *visible]


BURST_MAX = 64
"""The pending id and 63 drafts: all rows that are verified together."""


def bursts_of(events):
    return [event for event in events if isinstance(event, Answered)]


def whole_burst():
    """A prompt whose first burst is long, and its ids."""
    for first in range(2, 60):
        events = Bench(burst_max=BURST_MAX).serve([first, 9], IdAnswer(BURST_MAX))
        if 50 <= len(bursts_of(events)[0].tokens) < BURST_MAX:
            return [first, 9], bursts_of(events)[0].tokens
    raise AssertionError("no prompt has a long burst")


PROMPT, BURST = whole_burst()


@pytest.mark.parametrize("at", [0, 1, 20, len(BURST) - 2, len(BURST) - 1])
def test_max_tokens_cuts_a_long_burst_exactly_and_the_session_goes_on_hot(at):
    """The journal ends with the answer; the next turn is appended and reads as cold."""
    bench = Bench(burst_max=BURST_MAX)
    (answered,) = bursts_of(bench.serve(PROMPT, answer := IdAnswer(at + 1)))

    assert answered.tokens == BURST[: at + 1] == tuple(answer.ids)
    assert answered.drafted == len(BURST) - 1
    assert answered.accepted == min(at + 1, len(BURST) - 1)
    assert tuple(bench.engine.journal) == (*PROMPT, *BURST[: at + 1])

    longer = [*PROMPT, *answer.ids, 7, 8]
    events = bench.serve(longer, warm := IdAnswer(5))
    Bench().serve(longer, cold := IdAnswer(5))
    assert events[0].plan.action is Action.APPEND
    assert warm.ids == cold.ids


def test_a_stop_id_ends_a_burst_and_the_session_goes_on_hot():
    """The engine yields it as the newest id; nothing is behind it, and nothing is rolled back."""
    stop = next(id_ for i, id_ in enumerate(BURST) if i > 10 and id_ not in BURST[:i])
    bench, steps = Bench(burst_max=BURST_MAX), []

    def perform(step):
        steps.append(type(step).__name__)
        return bench.performer.perform(step)

    bench.serve(PROMPT, answer := IdAnswer(500, frozenset({stop})), perform=perform)

    assert tuple(answer.ids) == BURST[: BURST.index(stop) + 1]
    assert tuple(bench.engine.journal) == (*PROMPT, *answer.ids)
    assert bench.loop.is_hot
    assert "Rollback" not in steps


@pytest.mark.parametrize("at", [1, 20, 45])
def test_a_stop_string_inside_a_long_burst_rolls_back_to_what_is_visible(at):
    """All that the burst has behind it goes too, in one rollback."""
    pair = BURST[at : at + 2]
    first = next(i for i in range(len(BURST)) if BURST[i : i + 2] == pair)
    bench = Bench(burst_max=BURST_MAX)
    events = bench.serve(PROMPT, IdAnswer(500, stop_pair=pair))

    assert events[-1].ending.kept_tokens == max(first, 1)
    assert tuple(bench.engine.journal) == (*PROMPT, *BURST[: max(first, 1)])
    assert bursts_of(events)[0].accepted == first + 2
    assert bench.loop.is_hot


def test_a_burst_without_an_ending_counts_all_its_drafts():
    """The last id of a burst is the model's own."""
    bench = Bench(burst_max=BURST_MAX)
    for event in bursts_of(bench.serve(PROMPT, IdAnswer(150)))[:-1]:
        assert event.accepted == event.drafted == len(event.tokens) - 1
        assert event.drafter == ("fake" if event.drafted else "")


def test_a_full_window_is_no_burst():
    """Held-back text comes without ids and without drafts."""
    *_, last, _ = Bench(max_seq=12).serve([9] * 5, IdAnswer(1000))
    assert last == Answered(())


class LateStop(IdAnswer):
    """An ending that keeps only the first id of a long answer."""

    def _end(self, reason, kept):
        return super()._end(reason, 1)


@pytest.mark.parametrize(("length", "hot"), [(65, True), (66, False)])
def test_an_ending_out_of_rollback_reach_is_normal_and_leaves_nothing_hot(length, hot):
    """64 ids can be rolled back; one more, and the answer still ends normally, unattached."""
    bench = Bench()
    events = bench.serve([9, 9], LateStop(length))
    assert events[-1].event is LifeEvent.FINISH
    assert bench.loop.is_hot is hot
    assert (bench.loop.policy.hot is not None) is hot


def test_a_full_window_ends_by_length():
    """The last position of the window is used; then the answer ends, and stays hot."""
    bench = Bench(max_seq=12)
    events = bench.serve([9] * 5, IdAnswer(1000))
    assert events[-1].ending.sampled_tokens == 7
    assert bench.loop.is_hot


@pytest.mark.parametrize(("limit_ms", "tokens"), [(0, 20), (1, 1), (5000, 5), (20_000, 20)])
def test_an_answer_that_takes_too_long_ends_by_length_and_stays_hot(limit_ms, tokens):
    """At the first boundary behind its time, and the conversation goes on from there."""
    server = Server()

    def second_by_second(step):
        server.now += isinstance(step, Decode | Advance)
        return server.performer.perform(step)

    prompt = said(1, 2, 3)
    served = server.serve(prompt, 20, perform=second_by_second, max_decode_ms=limit_ms)
    assert len(served.ids) == tokens
    assert served.of(Ended)[0].event is LifeEvent.FINISH
    assert server.loop.is_hot
    again = server.serve((*prompt, *served.ids, *said(4)), 2)
    assert again.action == "append"


@pytest.mark.parametrize("boundary", range(6))
def test_a_cancel_is_seen_at_the_next_boundary_and_leaves_nothing_hot(boundary):
    """Set during any step, it ends the turn before another one is performed."""
    bench, cancel, steps = Bench(), Flag(), []

    def perform(step):
        steps.append(step)
        if len(steps) == boundary + 1:
            cancel.cancelled = True
        return bench.performer.perform(step)

    events = bench.serve([9] * 150, IdAnswer(50), cancel=cancel, perform=perform)
    assert events[-1] == Ended(LifeEvent.CANCEL)
    assert len(steps) == boundary + 1
    assert bench.loop.boundary.state is Boundary.NOTHING


@pytest.mark.parametrize("boundary", range(7))
def test_a_fault_in_any_step_fails_the_turn_and_the_next_one_is_served(boundary):
    """The error names what broke; the next request rebuilds."""
    bench, steps = Bench(), []

    def perform(step):
        steps.append(step)
        if len(steps) == boundary + 1:
            raise MemoryError("no more rows")
        return bench.performer.perform(step)

    events = bench.serve([9] * 150, IdAnswer(50), perform=perform)
    assert events[-1].event is LifeEvent.FAIL
    assert "no more rows" in str(events[-1].error)
    assert not bench.loop.is_hot
    again = bench.serve([9] * 150, IdAnswer(2))
    assert again[0].plan.action is Action.REBUILD
    assert again[-1].event is LifeEvent.FINISH


def test_a_turn_that_is_dropped_leaves_nothing_hot_and_no_events():
    """Closing the run early is an unclean exit; its events do not reach the next turn."""
    bench = Bench()
    turn = Turn(Prompt.from_ids([9] * 5), SamplingParams(), IdAnswer(50), Flag())
    run = bench.loop.run(turn, bench.performer.perform)
    for _ in range(3):
        next(run)
    run.close()
    assert not bench.loop.is_hot
    assert isinstance(bench.serve([9], IdAnswer(1))[0], Planned)


def test_an_exact_prompt_feeds_nothing_and_answers_as_cold():
    """All ids processed: the last hidden row is asked again; a different pending id is dropped."""
    bench = Bench()
    bench.serve([9, 9, 8], first := IdAnswer(6))
    prompt = [9, 9, 8, *first.ids[:-1]]
    fed = []

    def perform(step):
        fed.append(type(step).__name__)
        return bench.performer.perform(step)

    events = bench.serve(prompt, warm := IdAnswer(4), perform=perform)
    assert events[0].plan.action is Action.EXACT
    assert fed[:2] == ["DropPending", "Decode"]
    Bench().serve(prompt, cold := IdAnswer(4))
    assert warm.ids == cold.ids


def test_output_start_is_where_the_answer_begins():
    """Penalties count the answer, so decode is told where it starts."""
    bench, seen = Bench(), []

    def perform(step):
        if hasattr(step, "params"):
            seen.append(step.params.output_start)
        result = bench.performer.perform(step)
        assert result is None or isinstance(result, int | DecodeChunk)
        return result

    bench.serve([9] * 7, IdAnswer(2), perform=perform)
    assert seen == [7]


# -- capsules --------------------------------------------------------------------------------------


def kinds(server):
    return sorted((e.position, e.kind.value) for e in server.policy.store.entries())


def test_a_long_first_turn_leaves_the_states_that_later_turns_need():
    """The system turn, each eighth cut, and both boundaries of the turn."""
    server = Server()
    prompt = (*opening(1, 2), *said(*[7] * 1100))
    served = server.serve(prompt)
    ends = len(prompt) - 1, len(prompt) + len(served.ids) - 1
    grid = [64 * n for n in range(1, 19) if (64 * n) < len(prompt)]
    eighth = [cut for i, cut in enumerate([5, *grid]) if (i + 1) % 8 == 0]
    assert kinds(server) == sorted(
        [
            (5, "system"),
            *[(cut, "cut") for cut in eighth],
            (ends[0], "prompt"),
            (ends[1], "committed"),
        ]
    )


@pytest.mark.parametrize("cuts", [1, 2, 5])
def test_a_cancelled_prefill_goes_on_at_the_cut_at_which_it_stopped(cuts):
    """A retry repeats nothing that was read."""
    server, flag, prompt = Server(), Flag(), said(*[7] * 500)
    steps = 0

    def perform(step):
        nonlocal steps
        steps += isinstance(step, Prefill | Advance)
        flag.cancelled = steps == cuts
        return server.performer.perform(step)

    cancelled = server.serve(prompt, cancel=flag, perform=perform)
    assert cancelled.events[-1].event is LifeEvent.CANCEL
    again = server.serve(prompt)
    assert again.plan.cached_tokens == 64 * cuts


def test_a_failed_prefill_keeps_the_states_that_it_has_crossed():
    """Only the call that failed, and those since the newest state, are made again."""
    server, prompt = Server(), (*opening(1, 2), *said(*[7] * 500))

    def perform(step):
        if isinstance(step, Advance):
            raise MemoryError("planted")  # noqa: TRY004 (it is a planted fault)
        return server.performer.perform(step)

    assert server.serve(prompt, perform=perform).events[-1].event is LifeEvent.FAIL
    assert server.serve(prompt).plan.cached_tokens == 5


@pytest.mark.parametrize("kind", [Weigh, Save, Restore])
def test_a_fault_of_the_cache_costs_time_only(kind):
    """Whatever of it fails, and always: every request is answered, as cold (G8)."""
    server, cold = Server(), Server(budget=0)

    def perform(step):
        if isinstance(step, kind):
            raise OSError("planted")
        return server.performer.perform(step)

    for prompt in (said(1, 2), said(3, 4), said(1, 2), said(1, 2)):
        served = server.serve(prompt, perform=perform)
        assert served.events
        assert served.ids == cold.serve(prompt).ids
        assert served.plan.cached_tokens in (0, len(prompt))
    if kind is not Restore:
        assert served.of(Saved)[0].error.startswith("OSError")


def test_a_state_that_cannot_be_restored_is_let_go_and_reported_as_a_rebuild():
    """G5: a hit that could not be used is no hit."""
    server = Server()
    server.serve(said(1, 2))
    server.serve(said(3, 4))
    held = len(server.policy.store.entries())

    def perform(step):
        if isinstance(step, Restore):
            raise OSError("planted")
        return server.performer.perform(step)

    served = server.serve(said(1, 2), perform=perform)
    assert served.action == "rebuild"
    assert server.policy.store.report()["damaged"] == 1
    assert len(server.policy.store.entries()) >= held - 1


def test_what_is_parked_is_not_paid_for_twice():
    """A boundary that is held is not saved again."""
    server = Server()
    first = server.serve(said(1, 2))
    assert len(first.of(Saved)) == 2
    side = server.serve(said(3, 4))
    assert len(side.of(Saved)) == 2


def test_only_what_was_kept_for_later_comes_after_the_end():
    """The client has its answer before the state is saved."""
    events = Server().serve(said(1, 2)).events
    end = next(i for i, event in enumerate(events) if isinstance(event, Ended))
    assert {type(event) for event in events[end + 1 :]} == {Saved}
