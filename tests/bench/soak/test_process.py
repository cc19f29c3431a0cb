"""What a server's process may hold at the end, and what its log says."""

import io
import os
from pathlib import Path
from types import SimpleNamespace

import pytest

from flashrt.bench.soak.process import MIB, ServerProcess, Usage, growth, leftovers
from flashrt.bench.soak.wire import Place

START = Usage(descriptors=9, threads=5, rss_bytes=300 * MIB)


def process(log=b""):
    """A process whose log is known; it is this one."""
    return ServerProcess(SimpleNamespace(pid=os.getpid()), Place("127.0.0.1", 1), io.BytesIO(log))


def test_nothing_may_be_left():
    """Less than at the start is no fault, one more is."""
    assert leftovers(START, START) == []
    assert leftovers(START, Usage(8, 4, 400 * MIB)) == []
    assert leftovers(START, Usage(10, 5, 0)) == ["10 descriptors at the end, 9 at the start"]
    assert leftovers(START, Usage(9, 6, 0)) == ["6 threads at the end, 5 at the start"]


@pytest.mark.parametrize(("grown_mib", "faults"), [(-5, 0), (20, 0), (21, 1)])
def test_memory_may_grow_by_20_mib(grown_mib, faults):
    """From action 2,000 on."""
    late = Usage(9, 5, START.rss_bytes + grown_mib * MIB)
    assert len(growth(START, late)) == faults


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="Linux only")
def test_the_usage_is_the_processs_own():
    """One more descriptor is seen."""
    before = process().usage()
    with open(os.devnull, "rb"):
        after = process().usage()
    assert after.descriptors == before.descriptors + 1
    assert before.threads >= 1
    assert before.rss_bytes > MIB


def test_every_traceback_of_a_log_is_found():
    """Plain ones, those of groups, and those whose end is not understood."""
    plain = b'10:00 flashrt x\nTraceback (most recent call last):\n  File "a"\nValueError: no\n'
    group = b"  + Exception Group Traceback (most recent call last):\n    | h11._util.OneError: b\n"
    odd = b"Traceback (most recent call last):\nSomething\n"
    assert process(plain + group).tracebacks() == ["ValueError: no", "h11._util.OneError: b"]
    assert process(odd).tracebacks() == ["Traceback"]
    assert process(b"10:00 flashrt a request waits\n").tracebacks() == []
