"""The record of one request: what its report says."""

import json
import re
from types import MappingProxyType

import msgspec
import pytest

from flashrt.errors import EngineFailed, PromptTooLong, QueueFull
from flashrt.fsm.lifecycle import Life
from flashrt.metrics.record import RequestRecord, kind_of
from tests.metrics.records import MISS, REUSE, finished
from tests.source import ROOT


def test_times_and_counts_are_differences_of_what_was_stamped():
    """Each figure is what its name says; cached and new make the prompt."""
    report = finished().report()
    assert report["queued_ms"] == 500
    assert report["prefill_ms"] == 500
    assert report["first_delta_ms"] == 1250
    assert report["decode_ms"] == 2000
    assert report["decode_tok_per_s"] == 20
    assert report["cached_tokens"] + report["new_prefill_tokens"] == 100


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


def test_the_report_says_how_a_prompt_was_reused():
    """Each field by its name, as it stands in the record."""
    report = finished(**REUSE).report()
    assert {name: report[name] for name in REUSE} == REUSE


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


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (PromptTooLong("a secret", prompt_tokens=9, max_tokens=7), "prompt_too_long"),
        (QueueFull("a secret"), "queue_full"),
        (EngineFailed("a secret"), "engine_failed"),
    ],
)
def test_a_failed_record_has_the_errors_words_and_its_kind_apart(error, kind):
    """Words may quote what the client sent; the kind never does."""
    record = RequestRecord("r4", created=0, enqueued_at=0.0)

    record.fail(error)

    assert (record.error, record.error_kind) == ("a secret", kind)
    assert kind_of(type(error)) == kind


def test_the_block_of_an_answer_has_no_words_of_an_error():
    """The report is what others read."""
    record = finished()
    record.fail(EngineFailed("a secret"))

    assert "secret" not in json.dumps(record.report())
