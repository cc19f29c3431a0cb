"""Where every record ends: counted and logged, once."""

import json
import logging
from types import MappingProxyType

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flashrt.errors import ClientLeft, QueueFull
from flashrt.fsm.lifecycle import Life
from flashrt.metrics.ledger import RECENT_RECORDS, TIMES, Ledger
from flashrt.metrics.record import RequestRecord
from tests.metrics.records import REUSE, finished


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
    assert (report["decode_steps"], report["spec_accepts"]) == (12, 27)
    assert report["accepted_per_position"] == [9, 6, 6, 3, 3]
    assert report["drafters"]["mtp"]["spec_attempts"] == 18
    assert sum("request_done" in line for line in caplog.messages) == 3


def test_a_log_line_is_split_at_spaces_alone(caplog):
    """Lists and objects are JSON without a space, so name=value can be read back."""
    with caplog.at_level("INFO", logger="flashrt"):
        Ledger().close(finished())
    (line,) = caplog.messages

    values = dict(word.split("=", 1) for word in line.split()[1:])
    assert json.loads(values["accepted_per_position"]) == [3, 2, 2, 1, 1]
    assert json.loads(values["drafters"])["mtp"]["spec_accepts"] == 4


def line_of(record):
    """The log line that closing the record writes."""
    log, lines = logging.getLogger("flashrt"), []
    level, listener = log.level, lines.append
    log.setLevel("INFO")
    log.addFilter(listener)
    try:
        Ledger().close(record)
    finally:
        log.removeFilter(listener)
        log.setLevel(level)
    (line,) = lines
    return line.getMessage()


def test_a_line_that_nobody_reads_is_not_made(monkeypatch):
    """Its request's client waits meanwhile; the record is counted as ever."""
    made, ledger = [], Ledger()
    monkeypatch.setattr(logging.getLogger("flashrt"), "level", logging.WARNING)
    monkeypatch.setattr(RequestRecord, "report", lambda record: made.append(record) or {})
    logging.getLogger("flashrt").manager._clear_cache()
    ledger.close(finished())
    logging.getLogger("flashrt").manager._clear_cache()
    assert made == []
    assert ledger.by_state["DONE"] == 1


def logged(**wish):
    """The values of a record's log line, by name."""
    return dict(word.split("=", 1) for word in line_of(finished(**wish)).split(" ")[1:])


def test_the_log_line_says_where_a_prefix_broke():
    """The message, the byte and the kind, and the other figures of reuse, one word each."""
    values = logged(**REUSE)
    assert values["miss"] == '{"message":3,"byte":17,"kind":"answer_text"}'
    assert {name: json.loads(values[name]) for name in REUSE} == REUSE


def test_where_nothing_broke_the_report_says_null_and_the_line_nothing():
    """None is no miss, no wish to pin and nothing restored; counts are 0 all the same."""
    report = finished().report()
    assert [report[name] for name in ("miss", "pin", "restore_ms")] == [None, None, None]
    assert (report["replayed_tokens"], report["saved_capsules"]) == (0, 0)
    assert logged().keys().isdisjoint({"miss", "pin", "restore_ms"})


readings = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=6),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner),
    max_leaves=6,
)


@given(st.dictionaries(st.text(max_size=4), readings), st.booleans())
def test_an_object_is_one_word_of_the_log_line_whatever_it_holds(found, frozen):
    """Blanks and line ends inside texts too; any mapping is written as a dict is."""
    words = line_of(finished(pin=MappingProxyType(found) if frozen else found)).split()
    (word,) = [word for word in words if word.startswith("pin=")]
    assert json.loads(word.removeprefix("pin=")) == found


def test_misses_are_counted_by_their_kind():
    """So that /health shows what breaks prefixes here; a request without one is in no count."""
    ledger = Ledger()
    for kind in ("message", "evicted", "message"):
        ledger.close(finished(miss={"kind": kind}))
    ledger.close(finished())
    assert ledger.report()["prefix_misses"] == {"message": 2, "evicted": 1}


def test_a_miss_without_a_kind_is_counted_and_does_no_harm():
    """A report that is poorer than expected must not end the engine's delivery."""
    ledger = Ledger()
    ledger.close(finished(miss={}))
    assert ledger.report()["prefix_misses"] == {"unknown": 1}
    assert ledger.report()["requests"] == {"DONE": 1}


def test_a_record_without_an_end_is_not_counted():
    """Exactly once, at the end."""
    with pytest.raises(AssertionError, match="only finished"):
        Ledger().close(RequestRecord("r3", created=0, enqueued_at=0.0))


def test_a_record_is_counted_once():
    """A second close is a bug of ours, and changes no total."""
    ledger, record = Ledger(), finished()
    ledger.close(record)

    with pytest.raises(AssertionError, match="counted already"):
        ledger.close(record)
    assert ledger.report()["requests"] == {"DONE": 1}


def test_errors_are_counted_by_their_kind():
    """Also of those that were refused before the engine saw them."""
    ledger = Ledger()
    for error in (QueueFull("a"), QueueFull("b"), ClientLeft("c")):
        record = finished(terminal_state=Life.REJECTED)
        record.fail(error)
        ledger.close(record)
    ledger.close(finished())

    assert ledger.report()["errors"] == {"queue_full": 2, "client_left": 1}


def test_times_are_seconds_and_what_did_not_happen_is_no_time():
    """Each field has its own distribution, so that waiting is never taken for computing."""
    ledger = Ledger()
    ledger.close(finished())
    ledger.close(finished(started_at=None, prefilled_at=None, first_token_at=None))

    seen = {name: (times.count, times.total) for name, times in ledger.times.items()}
    assert seen == {
        "tokenize_ms": (2, 0.003),
        "queued_ms": (1, 0.5),
        "restore_ms": (0, 0.0),
        "prefill_ms": (1, 0.5),
        "first_delta_ms": (1, 1.25),
        "decode_ms": (1, 2.0),
    }
    assert (ledger.speeds.count, ledger.speeds.total) == (1, 20.0)


def test_tokens_of_a_prompt_count_once_the_engine_took_it_up():
    """A huge prompt that was refused makes no cache look bad."""
    ledger = Ledger()
    refused = finished(terminal_state=Life.REJECTED, started_at=None, cached_tokens=0)
    ledger.close(refused)
    ledger.close(finished(prefix_action="append"))

    assert refused.report()["new_prefill_tokens"] == 0
    assert (ledger.report()["prompt_tokens"], ledger.report()["cached_tokens"]) == (100, 90)


def test_graph_captures_add_up():
    """A server in good health captures nothing while somebody waits."""
    ledger = Ledger()
    for captures in (2, 0, 1):
        ledger.close(finished(graph_capture_count=captures))

    assert ledger.report()["graph_capture_count"] == 3


def test_what_is_kept_of_old_requests_is_bounded_and_holds_no_prompt():
    """A server that runs for weeks keeps a few numbers of the newest, and no ids."""
    ledger = Ledger()
    for _ in range(RECENT_RECORDS + 5):
        ledger.close(finished(lineage=((1, False, (7,)),)))

    assert len(ledger.recent) == RECENT_RECORDS
    kept = attrs.astuple(ledger.recent[0])
    assert [value for value in kept if isinstance(value, tuple | list)] == []
    assert set(ledger.times) == set(TIMES)
