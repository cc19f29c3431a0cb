"""Beside others; test_run.py runs the whole command."""

from flashrt.bench.engine import peers
from tests.bench.engine.subjects import bounds, subject

RUNS = {70: [((1, 2, 3, 4), [9.0, 9.0, 9.0, 9.0]), ((1, 2, 3, 4), [5.0, 1.0, 2.0, 3.0])]}


def test_the_first_prompt_of_a_length_warms_up():
    """And a step is timed where it follows another one."""
    prompt, further = peers.figures("flashrt", RUNS, bounds())

    assert (prompt.ms, prompt.count, prompt.bound_ms) == (5.0, 1, bounds().prompt_ms(70))
    assert (further.ms, further.count, further.bound_ms) == (2.5, 2, bounds().step_ms(1, 70))


def test_our_run_has_a_time_for_each_id():
    """The prompt's is in the first one's."""
    ids, times = peers.run(subject(), subject().ids(70), 5)

    assert len(ids) == len(times) == 5
    assert all(ms > 0 for ms in times)
