"""One record per request, and what is derived from it."""

import json
import logging
import re
from types import MappingProxyType

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flashrt.fsm.lifecycle import Life
from flashrt.metrics import DraftStats, GenerationStats, Ledger, RequestRecord
from tests.source import ROOT

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


def drafting():
    """Four steps: the MTP layer was right in 3 of 4, lookup in 5 of 5, and one step had no draft.

    The third step's last ids were cut away by an ending.
    """
    stats = GenerationStats()
    stats.count(tokens=4, drafted=4, accepted=3, drafter="mtp")
    stats.count(tokens=1, drafted=0, accepted=0, drafter="")
    stats.count(tokens=5, drafted=9, accepted=5, drafter="lookup")
    stats.count(tokens=2, drafted=2, accepted=1, drafter="mtp")
    return stats


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
        "generation": drafting(),
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
    assert report["cached_tokens"] + report["new_prefill_tokens"] == 100


def test_drafts_are_counted_over_the_steps_that_had_one():
    """A step without a draft says nothing about drafts, so it changes no figure but its own."""
    report = finished().report()

    assert report["decode_steps"] == 4
    assert (report["spec_attempts"], report["spec_accepts"]) == (15, 9)
    assert report["accept_length"] == round((4 + 5 + 2) / 3, 3)
    assert report["accepted_per_position"] == [3, 2, 2, 1, 1]


def test_each_drafter_has_its_own_figures():
    """A quotation must not make the MTP layer look good."""
    assert finished().report()["drafters"] == {
        "mtp": {"spec_attempts": 6, "spec_accepts": 4, "accept_length": 3.0},
        "lookup": {"spec_attempts": 9, "spec_accepts": 5, "accept_length": 5.0},
    }


def test_without_drafts_there_is_no_accept_length():
    """None, not 1: nothing was tried."""
    stats = GenerationStats()
    stats.count(tokens=1, drafted=0, accepted=0, drafter="")

    assert stats.report() == {
        "decode_steps": 1,
        "spec_attempts": 0,
        "spec_accepts": 0,
        "accept_length": None,
        "accepted_per_position": [],
        "drafters": {},
    }


steps = st.lists(
    st.tuples(st.integers(0, 9), st.integers(0, 9), st.sampled_from(["mtp", "lookup"])), max_size=12
)


@given(steps, st.integers(0, 12))
def test_the_aggregate_is_the_same_however_steps_fall_into_requests(steps, cut):
    """/health adds up what the records say, position by position."""
    whole, total = GenerationStats(), GenerationStats()
    for part in (steps[:cut], steps[cut:]):
        request = GenerationStats()
        for accepted, rejected, drafter in part:
            step = (accepted + 1, accepted + rejected, accepted, drafter)
            request.count(*step)
            whole.count(*step)
        total.add(request)

    assert total == whole
    drafts = sum(accepted for accepted, _, _ in steps)
    assert sum(total.report()["accepted_per_position"]) == drafts
    assert DraftStats().accept_length is None


@pytest.mark.parametrize(("used", "shown"), [(None, "auto"), (0, 0), (5, 5)])
def test_the_report_says_which_depth_was_used(used, shown):
    """A clipped wish, or the server's own choice."""
    assert finished(draft_tokens=used).report()["draft_tokens"] == shown


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


MISS = {"message": 3, "byte": 17, "kind": "answer_text"}
REUSE = {
    "replayed_tokens": 12,
    "miss": MISS,
    "pin": {"pinned_tokens": 64},
    "restore_ms": 1.25,
    "saved_capsules": 2,
}


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


def logged(**wish):
    """The values of a record's log line, by name."""
    return dict(word.split("=", 1) for word in line_of(finished(**wish)).split(" ")[1:])


def test_the_report_says_how_a_prompt_was_reused():
    """Each field by its name, as it stands in the record."""
    report = finished(**REUSE).report()
    assert {name: report[name] for name in REUSE} == REUSE


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


def test_any_mapping_is_json_in_the_block():
    """The writers of answers know dicts only."""
    report = finished(miss=MappingProxyType(MISS), pin=MappingProxyType({"unpinned": 1})).report()
    written = json.loads(msgspec.json.encode(report))
    assert (written["miss"], written["pin"]) == (MISS, {"unpinned": 1})


def test_the_page_about_http_has_every_field_of_the_report():
    """docs/http.md says what each one means, and its example has all of them, in their order."""
    page = (ROOT / "docs" / "http.md").read_text()
    report = finished().report()
    assert [name for name in report if f"`{name}`" not in page] == []
    (example,) = re.findall(r"^```json\n(.*?)^```", page, flags=re.M | re.S)
    assert list(json.loads(example)) == list(report)


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
