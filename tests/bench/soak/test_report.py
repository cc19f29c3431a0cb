"""What a soak came to, for a person and for a program."""

import json

from flashrt.bench.soak.process import MIB, Usage
from flashrt.bench.soak.report import SHOWN_VIOLATIONS, Outcome
from flashrt.bench.soak.tally import Records, Tally, Violation


def outcome(violations):
    """Of three actions."""
    tally = Tally(Records(answered=2, finished=2, unknown=1), violations=violations)
    for name in ("append", "append", "probe"):
        tally.took(name, 1.5)
        tally.saw(name, 200)
    usage = {"at the start": Usage(9, 5, 300 * MIB)}
    return Outcome(4, 8, tally, 12.0, 2, 0, {"DONE": 2, "CANCELLED": 1}, usage, 0)


def test_a_person_reads_the_sums_and_the_verdict():
    """One line an action, then what was compared, counted and held, then the verdict."""
    lines = outcome([]).lines()
    assert lines[1].split() == ["append", "2", "1.5", "1.5", "2", "x", "200"]
    assert any("3 (1 CANCELLED, 2 DONE); the clients know of 2, and left 1" in x for x in lines)
    assert "process   at the start: 9 descriptors, 5 threads, 300.0 MiB" in lines
    assert "process   exit status 0 on SIGTERM" in lines
    assert lines[-1] == "--seed 4 --clients 8: 3 actions in 12 s, 0 violations"


def test_each_violation_says_what_repeats_it():
    """Action, kind and client; what is no client's comes first, and of very many not all are
    shown."""
    many = [Violation(n, "append", n % 8, "bad") for n in range(SHOWN_VIOLATIONS)]
    lines = outcome([*many, Violation(-1, "process", -1, "status 1")]).lines()
    found = [line for line in lines if line.startswith("VIOLATION")]
    assert found[:2] == [
        "VIOLATION process: status 1",
        "VIOLATION action 0 (append, client 0): bad",
    ]
    assert lines[-2] == "... and 1 more"
    assert lines[-1].endswith(f"{SHOWN_VIOLATIONS + 1} violations")


def test_a_program_reads_all_of_it():
    """The same figures, and every violation."""
    many = [Violation(n, "append", 0, "bad") for n in range(SHOWN_VIOLATIONS + 5)]
    figures = json.loads(json.dumps(outcome(many).as_json()))
    assert len(figures["violations"]) == SHOWN_VIOLATIONS + 5
    assert figures["actions"] == 3
    assert figures["records"]["counted"] == {"DONE": 2, "CANCELLED": 1}
    assert figures["usage"]["at the start"]["rss_bytes"] == 300 * MIB
