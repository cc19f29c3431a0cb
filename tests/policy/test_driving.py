"""Steps are performed one by one, and every event comes out once, behind its step."""

from hypothesis import given
from hypothesis import strategies as st

from flashrt.policy.driving import driven
from flashrt.policy.steps import Reset, Tell, Weigh
from flashrt.policy.turn import Progressed

plans = st.lists(st.tuples(st.integers(0, 3), st.booleans()), max_size=6)


def work(plan, events, seen):
    """A step for each entry: so many events before it; what came of it goes to `seen`."""
    for number, (count, _) in enumerate(plan):
        events += [Progressed(number)] * count
        try:
            seen.append((yield Weigh(number)))
        except OSError as error:
            seen.append(str(error))
    events.append(Progressed(-1))


@given(plans)
def test_each_step_gets_its_result_or_its_error_and_each_event_comes_once(plan):
    """In their order; those behind the last step come too."""
    events, seen = [], []

    def perform(step):
        if plan[step.length][1]:
            raise OSError(f"broken {step.length}")
        return 10 * step.length

    batches = list(driven(work(plan, events, seen), events, perform))
    assert batches == [
        *(tuple([Progressed(n)] * count) for n, (count, _) in enumerate(plan)),
        (Progressed(-1),),
    ]
    assert seen == [f"broken {n}" if fails else 10 * n for n, (_, fails) in enumerate(plan)]
    assert events == []


def test_what_is_to_be_told_is_handed_out_before_the_work_behind_it():
    """Nobody performs the telling, and nothing comes of it."""
    events, seen = [], []

    def steps():
        events.append(Progressed(1))
        seen.append((yield Tell()))
        events.append(Progressed(2))
        seen.append((yield Reset()))

    performed = []
    run = driven(steps(), events, lambda step: performed.append(step) or 7)
    assert (next(run), seen, performed) == ((Progressed(1),), [], [])
    assert list(run) == [(Progressed(2),), ()]
    assert (seen, performed) == ([None, 7], [Reset()])


def test_an_early_close_closes_the_steps_and_drops_their_events():
    """What was not handed out does not reach whoever is driven next."""
    events, closed = [], []

    def steps():
        try:
            yield Reset()
            events.append(Progressed(1))
            yield Reset()
        finally:
            events.append(Progressed(2))
            closed.append(True)

    run = driven(steps(), events, lambda _: None)
    next(run)
    run.close()
    assert (events, closed) == ([], [True])
