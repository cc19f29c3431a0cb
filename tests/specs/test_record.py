"""The record in `specs/record.md` and in the code: stamps, fields, and what they measure."""

import attrs
import pytest

from flashrt.fsm.lifecycle import Life
from flashrt.metrics.record import RequestRecord
from flashrt.metrics.request_log import STAMPS, fields_of
from tests.metrics.records import finished
from tests.specs.markdown import Block, expect_columns, read_folder

(STAMP_TABLE,) = [block for block in read_folder() if block.kind == "stamps"]
(FIELD_TABLE,) = [block for block in read_folder() if block.kind == "fields"]
TIMES = {field: measured for _, field, measured, _ in FIELD_TABLE.rows if " .. " in measured}
MOMENTS = ("enqueued_at", "started_at", "prefilled_at", "first_token_at", "finished_at")


def column(block: Block, name: str) -> list[str]:
    """The cells of one column."""
    at = block.header.index(name)
    return [row[at] for row in block.rows]


def test_both_tables_are_about_the_record_in_the_code():
    """Their markers lead to the class."""
    expect_columns(STAMP_TABLE, ("row", "stamp", "set by", "because"))
    expect_columns(FIELD_TABLE, ("row", "field", "measured", "because"))
    assert {STAMP_TABLE.target(), FIELD_TABLE.target()} == {RequestRecord}


def test_the_record_has_the_four_stamps_in_their_order():
    """In the class, and in each line of the request log."""
    stamps = column(STAMP_TABLE, "stamp")
    known = [field.name for field in attrs.fields(RequestRecord)]
    assert [name for name in known if name in stamps] == stamps
    assert list(STAMPS) == stamps
    assert list(fields_of(finished())["stamps_ms"]) == stamps


@pytest.mark.parametrize("field", column(FIELD_TABLE, "field"))
def test_every_field_is_in_the_block_and_in_the_request_log(field):
    """By its name, and with one value."""
    record = finished(prefix_action="append")
    report = record.report()
    assert report[field] is not None
    assert fields_of(record)[field] == report[field]


@pytest.mark.parametrize("field", TIMES)
def test_a_time_is_the_difference_of_the_two_moments_written(field):
    """Whatever the other moments are; null as soon as one of the two never came."""
    start, end = TIMES[field].split(" .. ")
    at = {moment: 100.0 + 2**n for n, moment in enumerate(MOMENTS)}
    record = finished(**at)
    assert getattr(record, field) == (at[end] - at[start]) * 1000
    for missing in {start, end} - {"enqueued_at"}:
        assert getattr(finished(**{**at, missing: None}), field) is None


@pytest.mark.parametrize("field", [f for _, f, m, _ in FIELD_TABLE.rows if m == "count"])
def test_a_count_is_0_where_nothing_was(field):
    """Never null: a sum over records needs no exceptions."""
    assert RequestRecord("r", created=0, enqueued_at=0.0).report()[field] == 0


def test_terminal_states_are_written_by_their_names():
    """As the lifecycle has them."""
    for life in (Life.DONE, Life.CANCELLED, Life.ERROR, Life.REJECTED):
        assert finished(terminal_state=life).report()["terminal_state"] == life.name
