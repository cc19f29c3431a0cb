"""Times of steps from one process to another."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flashrt.bench.overhead.clocked import Span, StepReader, StepWriter, own_seconds


def test_what_one_process_writes_the_other_reads_once(tmp_path):
    """Each look gives what is new, oldest first; before there is a file, nothing."""
    reader = StepReader(tmp_path / "steps")
    assert reader.new() == []
    writer = StepWriter(tmp_path / "steps")
    writer.write(1.0, 1.5)
    writer.write(2.0, 2.25)
    assert reader.new() == [Span(1.0, 1.5), Span(2.0, 2.25)]
    writer.write(3.0, 4.0)
    assert reader.new() == [Span(3.0, 4.0)]
    assert reader.new() == []


@given(st.lists(st.integers(0, 100), min_size=2, max_size=20, unique=True), st.data())
def test_own_time_is_that_of_the_steps_inside_the_window(edges, data):
    """Compared with counting whole units one by one."""
    edges = sorted(edges)[: len(edges) // 2 * 2]
    steps = [Span(a, b) for a, b in zip(edges[::2], edges[1::2], strict=True)]
    since, until = sorted(data.draw(st.tuples(st.integers(0, 100), st.integers(0, 100))))
    units = sum(any(s.start <= unit < s.end for s in steps) for unit in range(since, until))
    assert own_seconds(steps, since, until) == pytest.approx(units)
