"""One record per request, and what is derived from it."""

import pytest

from flashrt.fsm.lifecycle import Life
from flashrt.metrics import Ledger, RequestRecord

MISSION_FIELDS = {
    "queued_ms",
    "tokenize_ms",
    "prefill_ms",
    "first_delta_ms",
    "decode_ms",
    "decode_tok_per_s",
    "spec_attempts",
    "spec_accepts",
    "accept_length",
    "graph_capture_count",
    "prefix_action",
    "cached_tokens",
    "new_prefill_tokens",
    "terminal_state",
}


def finished(**wish):
    """A record that went all the way, with round times."""
    fields = {
        "started_at": 10.5,
        "prefilled_at": 11.0,
        "first_token_at": 11.25,
        "finished_at": 13.0,
        "prompt_ids": tuple(range(100)),
        "cached_tokens": 90,
        "completion_tokens": 40,
        "decode_steps": 20,
        "terminal_state": Life.DONE,
        **wish,
    }
    record = RequestRecord("r1", created=0, enqueued_at=10.0, tokenize_ms=1.5)
    for name, value in fields.items():
        setattr(record, name, value)
    return record


def test_the_report_has_the_missions_fields_by_name():
    """Seam 5: these names are what dashboards and clients read."""
    assert finished().report().keys() >= MISSION_FIELDS


def test_times_and_counts_are_differences_of_what_was_stamped():
    """Each figure is what its name says; cached and new make the prompt."""
    report = finished().report()
    assert report["queued_ms"] == 500
    assert report["prefill_ms"] == 500
    assert report["first_delta_ms"] == 1250
    assert report["decode_ms"] == 2000
    assert report["decode_tok_per_s"] == 20
    assert report["accept_length"] == 2
    assert report["cached_tokens"] + report["new_prefill_tokens"] == 100


def test_what_did_not_happen_is_none_and_not_zero():
    """A request that was cancelled in the queue has no prefill time."""
    record = RequestRecord("r2", created=0, enqueued_at=10.0)
    record.finished_at, record.terminal_state = 11.0, Life.CANCELLED
    report = record.report()
    for name in ("queued_ms", "prefill_ms", "first_delta_ms", "decode_ms", "decode_tok_per_s"):
        assert report[name] is None


def test_the_ledger_counts_every_record_once_by_how_it_ended(caplog):
    """The aggregate of /health is the sum of the records, and each leaves one log line."""
    ledger = Ledger()
    with caplog.at_level("INFO", logger="flashrt"):
        for state in (Life.DONE, Life.DONE, Life.ERROR):
            ledger.close(finished(terminal_state=state, prefix_action="append"))
    report = ledger.report()
    assert report["requests"] == {"DONE": 2, "ERROR": 1}
    assert report["prefix_actions"] == {"append": 3}
    assert report["cached_tokens"] == 270
    assert report["median_queued_ms"] == 500
    assert sum("request_done" in line for line in caplog.messages) == 3


def test_a_record_without_an_end_is_not_counted():
    """Exactly once, at the end."""
    with pytest.raises(AssertionError, match="only finished"):
        Ledger().close(RequestRecord("r3", created=0, enqueued_at=0.0))
