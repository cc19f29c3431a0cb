"""/metrics: the ledger and the live state, as Prometheus reads them."""

import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import REGISTRY
from prometheus_client.parser import text_string_to_metric_families

import flashrt.errors
from flashrt.chat.breaks import BreakKind
from flashrt.engine.drafting.depth import LOOKUP, MTP
from flashrt.errors import (
    AnswerCancelled,
    BodyTooLarge,
    ClientLeft,
    EngineFailed,
    FlashRTError,
    Refused,
)
from flashrt.fsm.lifecycle import LIFECYCLE
from flashrt.fsm.server import ServerState
from flashrt.metrics.generation import GenerationStats
from flashrt.metrics.ledger import TIMES, Ledger
from flashrt.metrics.prometheus import (
    CACHES,
    DRAFTERS,
    MISSES,
    RECORDED_ERRORS,
    TIME_HELP,
    Exposition,
    Now,
    Series,
    seconds_name,
)
from flashrt.metrics.request_log import RequestLog
from flashrt.policy.capsules import CapsuleStore
from flashrt.policy.prefix import Action
from tests.metrics.records import finished
from tests.source import ROOT

READY = Now(ServerState.READY, queued=0, running=0)


def exposition(ledger=None, now=READY, model="m"):
    """What one server says."""
    return Exposition(Series(ledger or Ledger(), lambda: now, model=model))


def families(text):
    """The families of a text, by name; those of the process itself left out."""
    parsed = text_string_to_metric_families(text.decode())
    return {family.name: family for family in parsed if family.name.startswith("flashrt_")}


def samples(text):
    """Every value by its name and labels."""
    return {
        (sample.name, *sorted(sample.labels.items())): sample.value
        for family in families(text).values()
        for sample in family.samples
    }


def value(text, name, **labels):
    """One value."""
    return samples(text)[(name, *sorted(labels.items()))]


def by_label(read, name):
    """The values of a family with one label, by that label."""
    return {key[1][1]: number for key, number in read.items() if key[0] == name}


def drafts(drafter):
    """Decode with one drafter."""
    stats = GenerationStats()
    stats.count(tokens=3, drafted=4, accepted=2, drafter=drafter)
    return stats


records = st.builds(
    lambda terminal, action, kind, drafter, error: (
        terminal,
        {
            "prefix_action": action,
            "miss": kind and {"kind": kind},
            "generation": drafts(drafter),
            "graph_capture_count": 1,
            "restore_ms": 2.0,
        },
        error,
    ),
    st.sampled_from(sorted(LIFECYCLE.terminal, key=lambda life: life.name)),
    st.sampled_from([None, *(action.value for action in Action)]),
    st.sampled_from([None, *MISSES]),
    st.sampled_from(DRAFTERS),
    st.sampled_from([None, *RECORDED_ERRORS]),
)


def close(ledger, drawn):
    """Close a record of each kind that was drawn."""
    for terminal, fields, error in drawn:
        record = finished(terminal_state=terminal, **fields)
        if error is not None:
            record.fail(error("words"))
        ledger.close(record)


@given(st.lists(records, max_size=12))
def test_every_series_is_there_from_the_start_whatever_comes(drawn):
    """A series that appears with its first event has no increase that a query could see."""
    ledger = Ledger(capsules=CapsuleStore(0).report())
    said = exposition(ledger)
    at_first = samples(said.text())
    close(ledger, drawn)

    assert samples(said.text()).keys() == at_first.keys()


def test_at_the_start_every_counter_is_0():
    """Of histograms too; gauges say what is."""
    counters = [f for f in families(exposition().text()).values() if f.type != "gauge"]
    assert len(counters) > 15
    assert {sample.value for family in counters for sample in family.samples} == {0.0}


def test_every_value_of_every_enum_has_its_series():
    """Terminal states, actions, kinds of misses, drafters and states of the server."""
    known = samples(exposition().text())
    wanted = [
        *(("requests_total", "terminal_state", state.name) for state in LIFECYCLE.terminal),
        *(("prefix_actions_total", "action", action.value) for action in Action),
        *(("prefix_misses_total", "kind", kind.value) for kind in BreakKind),
        ("prefix_misses_total", "kind", "evicted"),
        *(("spec_attempts_total", "drafter", drafter) for drafter in (MTP, LOOKUP)),
        *(("spec_accepts_total", "drafter", drafter) for drafter in (MTP, LOOKUP)),
        *(("server_state", "state", state.name.lower()) for state in ServerState),
    ]
    missing = [w for w in wanted if (f"flashrt_{w[0]}", (w[1], w[2])) not in known]
    assert missing == []


def test_every_error_of_admission_has_its_series():
    """413, 429, 503, a failed engine, a cancel and a client that left; of session calls also 404
    and 409. A body is refused at the door."""
    errors = [e for e in vars(flashrt.errors).values() if isinstance(e, type)]
    refusals = {
        error
        for error in errors
        if issubclass(error, Refused) and error.status in (404, 409, 413, 429, 503)
    }
    assert all(issubclass(error, FlashRTError) for error in RECORDED_ERRORS)
    ended = {EngineFailed, ClientLeft, AnswerCancelled}
    assert set(RECORDED_ERRORS) == refusals - {BodyTooLarge} | ended


@given(st.lists(records, max_size=12))
def test_totals_are_the_ledgers(drawn):
    """One source: what /health reports is what is counted here."""
    ledger = Ledger()
    close(ledger, drawn)
    read, report = samples(exposition(ledger).text()), ledger.report()

    for name in ("requests", "errors", "prefix_actions", "prefix_misses"):
        counts = by_label(read, f"flashrt_{name}_total")
        assert {word: count for word, count in counts.items() if count} == report[name]
    taken_up = sum(fields["prefix_action"] is not None for _, fields, _ in drawn)
    assert read["flashrt_prompt_tokens_total",] == 100 * taken_up
    assert read["flashrt_cached_tokens_total",] == 90 * taken_up
    assert read["flashrt_completion_tokens_total",] == 40 * len(drawn)
    assert read["flashrt_graph_captures_total",] == len(drawn)
    assert read["flashrt_decode_steps_total",] == report["decode_steps"]
    assert sum(by_label(read, "flashrt_spec_attempts_total").values()) == report["spec_attempts"]
    assert sum(by_label(read, "flashrt_spec_accepts_total").values()) == report["spec_accepts"]


def test_times_are_histograms_in_seconds():
    """500 ms in the queue are half a second; queue time is apart from prefill time."""
    ledger = Ledger()
    ledger.close(finished(started_at=10.25))
    text = exposition(ledger).text()

    assert value(text, "flashrt_queued_seconds_sum") == 0.25
    assert value(text, "flashrt_prefill_seconds_sum") == 0.75
    assert value(text, "flashrt_first_delta_seconds_sum") == 1.25
    assert value(text, "flashrt_queued_seconds_bucket", le="0.25") == 1
    assert value(text, "flashrt_queued_seconds_bucket", le="0.1") == 0
    assert value(text, "flashrt_queued_seconds_bucket", le="+Inf") == 1
    assert value(text, "flashrt_decode_tokens_per_second_sum") == 20
    assert value(text, "flashrt_restore_seconds_count") == 0
    assert list(TIME_HELP) == list(TIMES)
    assert all(math.isfinite(v) for v in samples(text).values())


@pytest.mark.parametrize("state", ServerState)
def test_the_live_state_is_one_hot_and_counts_who_is_here(state):
    """Read at the moment of the scrape."""
    text = exposition(now=Now(state, queued=3, running=1)).text()
    shown = by_label(samples(text), "flashrt_server_state")
    assert shown == {s.name.lower(): float(s is state) for s in ServerState}
    assert value(text, "flashrt_requests_queued") == 3
    assert value(text, "flashrt_requests_running") == 1


def test_saved_states_are_those_of_the_store():
    """What they hold, what they may hold, and what became of them."""
    held = {**CapsuleStore(5 << 20).report(), "count": 2, "bytes": 300, "pinned": 1, "evicted": 7}
    held |= {"host_count": 3, "disk_budget_bytes": 9}
    text = exposition(Ledger(capsules=held)).text()

    assert value(text, "flashrt_capsules") == 2
    assert value(text, "flashrt_capsules_pinned") == 1
    assert value(text, "flashrt_capsule_bytes") == 300
    assert value(text, "flashrt_capsule_budget_bytes") == 5 << 20
    assert value(text, "flashrt_capsule_events_total", event="evicted") == 7
    assert value(text, "flashrt_capsules_by_tier", tier="host") == 3
    assert value(text, "flashrt_capsule_tier_bytes", tier="device") == 300
    assert value(text, "flashrt_capsule_tier_budget_bytes", tier="disk") == 9


def test_lost_lines_of_the_request_log_are_counted():
    """Whoever counts lines can know how many are missing."""
    ledger = Ledger(RequestLog(Path("/dev/full")))
    ledger.close(finished())
    assert value(exposition(ledger).text(), "flashrt_request_log_lost_lines_total") == 1


def test_two_servers_of_one_process_share_nothing():
    """Not with each other, and not with the client library's own registry."""
    one, other = Ledger(), Ledger()
    first, second = exposition(one, model="a"), exposition(other, model="b")
    one.close(finished())

    done = {"terminal_state": "DONE"}
    assert value(first.text(), "flashrt_requests_total", **done) == 1
    assert value(second.text(), "flashrt_requests_total", **done) == 0
    assert value(second.text(), "flashrt_info", model="b") == 1
    assert [f.name for f in REGISTRY.collect() if f.name.startswith("flashrt_")] == []


def test_a_name_of_a_model_is_only_a_label():
    """Quotes and line ends in it make no series."""
    name = 'a"} 5\nflashrt_requests_queued 9\n'
    assert value(exposition(model=name).text(), "flashrt_info", model=name) == 1
    assert value(exposition(model=name).text(), "flashrt_requests_queued") == 0


def test_every_family_has_a_help_text_and_a_name_with_its_unit():
    """Names are Prometheus' own: seconds and bytes, `_total` where something is counted."""
    for family in families(exposition().text()).values():
        assert family.documentation.endswith("."), family.name
        assert "_ms" not in family.name
        assert family.type in ("counter", "gauge", "histogram")
    assert seconds_name("queued_ms") == "queued_seconds"


def test_the_page_lists_every_family_and_no_other():
    """docs/metrics.md, in a table with what each one says."""
    page = (ROOT / "docs" / "metrics.md").read_text()
    rows = [line for line in page.splitlines() if line.startswith("| `flashrt_")]
    listed = {line.split("`")[1].split("{")[0] for line in rows}
    known = {
        f"{family.name}_total" if family.type == "counter" else family.name
        for family in families(exposition().text()).values()
    }
    assert listed == known


def test_what_is_remembered_is_told_by_cache():
    """Each has a series from the start; what is not known is 0."""
    names = by_label(samples(exposition().text()), "flashrt_cache_bytes")
    assert names == dict.fromkeys(CACHES, 0.0)
    now = Now(ServerState.READY, 0, 0, {"segments": 5, "replay": 7})
    told = by_label(samples(exposition(now=now).text()), "flashrt_cache_bytes")
    assert told == {**names, "segments": 5.0, "replay": 7.0}
