"""`--request-log`: a line per record, whatever becomes of the disk."""

import json
import os
import resource
import signal
import stat
from datetime import UTC, datetime
from pathlib import Path

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flashrt.errors import CannotServe, EngineFailed
from flashrt.fsm.lifecycle import Life
from flashrt.metrics.ledger import Ledger
from flashrt.metrics.record import RequestRecord
from flashrt.metrics.request_log import STAMPS, VERSION, RequestLog, line_of
from tests.metrics.records import REUSE, finished
from tests.source import ROOT

UNIX_S = 1_800_000_000.25


def read(path):
    """The lines of a log."""
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_a_line_has_the_version_the_report_the_stamps_and_the_sizes():
    """All fields of the report by their names, and nothing else but what is listed here."""
    record = finished(**REUSE, enqueued_unix_s=UNIX_S)
    line = json.loads(line_of(record))

    assert line["version"] == VERSION == 1
    assert datetime.fromisoformat(line["enqueued_at"]) == datetime.fromtimestamp(UNIX_S, UTC)
    assert {name: line[name] for name in record.report()} == json.loads(json.dumps(record.report()))
    sizes = {"prompt_tokens": 100, "completion_tokens": 40, "reasoning_tokens": 0}
    assert {name: line[name] for name in sizes} == sizes
    own = {"version", "enqueued_at", "stamps_ms", "operation", "capsule_faults", "error_kind"}
    own |= sizes.keys()
    assert line.keys() == own | record.report().keys()


def test_stamps_are_milliseconds_from_the_first():
    """A stamp that never came is null."""
    assert json.loads(line_of(finished()))["stamps_ms"] == {
        "enqueued_at": 0.0,
        "started_at": 500.0,
        "first_token_at": 1250.0,
        "finished_at": 3000.0,
    }
    queued = finished(started_at=None, first_token_at=None, terminal_state=Life.CANCELLED)
    assert list(json.loads(line_of(queued))["stamps_ms"].values()) == [0.0, None, None, 3000.0]
    assert set(STAMPS) <= {field.name for field in attrs.fields(RequestRecord)}


@given(st.text(min_size=12), st.lists(st.integers(10**9, 2**31), min_size=1))
def test_a_line_is_one_line_without_text_or_ids(words, ids):
    """Not of prompts, not of answers, and not of errors that quote them."""
    record = finished(prompt_ids=tuple(ids), lineage=((1, False, tuple(ids)),))
    record.fail(EngineFailed(words))
    line = line_of(record)

    assert line.count(b"\n") == 1
    assert line.endswith(b"}\n")
    values = json.loads(line)
    assert words not in values.values()
    assert values["error_kind"] == "engine_failed"
    assert all(str(one).encode() not in line for one in ids)


def test_closing_a_record_writes_its_line_once(tmp_path):
    """Lines come behind those that are there, in the order in which requests ended."""
    path = tmp_path / "requests.jsonl"
    path.write_text('{"version": 1}\n')
    ledger = Ledger(RequestLog.open(str(path)))
    for state in (Life.DONE, Life.REJECTED, Life.ERROR, Life.CANCELLED):
        ledger.close(finished(terminal_state=state))

    states = [line.get("terminal_state") for line in read(path)]
    assert states == [None, "DONE", "REJECTED", "ERROR", "CANCELLED"]


def test_a_file_that_was_moved_away_is_begun_anew(tmp_path):
    """Rotating needs no signal and loses nothing."""
    path = tmp_path / "requests.jsonl"
    requests = RequestLog.open(str(path))
    requests.write(finished())
    path.rename(tmp_path / "requests.jsonl.1")
    requests.write(finished(terminal_state=Life.ERROR))

    assert [line["terminal_state"] for line in read(tmp_path / "requests.jsonl.1")] == ["DONE"]
    assert [line["terminal_state"] for line in read(path)] == ["ERROR"]
    assert requests.lost_lines == 0


def test_the_file_is_not_for_everybody(tmp_path):
    """Who asked when, and for how much, is nobody else's business."""
    path = tmp_path / "requests.jsonl"
    RequestLog.open(str(path))
    assert not stat.S_IMODE(path.stat().st_mode) & 0o007


@pytest.mark.parametrize("name", [".", "no/such/folder.jsonl"])
def test_a_file_that_cannot_be_written_is_refused_at_start(tmp_path, name):
    """The message names the flag and the file."""
    with pytest.raises(CannotServe, match="--request-log: cannot write") as caught:
        RequestLog.open(str(tmp_path / name))
    assert str(tmp_path / name) in str(caught.value)


def test_a_disk_error_is_logged_once_and_hurts_nobody(tmp_path, caplog):
    """Totals go on, lost lines are counted, and the end of the trouble is said too."""
    folder = tmp_path / "logs"
    folder.mkdir()
    ledger = Ledger(RequestLog.open(str(folder / "requests.jsonl")))
    (folder / "requests.jsonl").unlink()
    folder.rmdir()
    for _ in range(3):
        ledger.close(finished())
    folder.mkdir()
    ledger.close(finished())

    said = [line for line in caplog.messages if "--request-log" in line]
    assert [line.split(": ", 1)[1] for line in said] == [
        f"cannot write {folder / 'requests.jsonl'}: No such file or directory; lines are lost "
        "until it can be written",
        f"{folder / 'requests.jsonl'} is written again",
    ]
    assert ledger.report()["requests"] == {"DONE": 4}
    assert ledger.request_log.lost_lines == 3
    assert len(read(folder / "requests.jsonl")) == 1


def test_a_full_disk_costs_lines_and_no_request():
    """/dev/full refuses every byte."""
    requests = RequestLog(Path("/dev/full"))
    requests.write(finished())
    assert requests.lost_lines == 1


@pytest.fixture
def no_waiting():
    """A system call that waits for ever becomes a failure."""

    def give_up(*_):
        raise TimeoutError("something waited for the pipe")

    before = signal.signal(signal.SIGALRM, give_up)
    signal.alarm(5)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


@pytest.mark.usefixtures("no_waiting")
def test_a_pipe_that_nobody_empties_stops_nothing(tmp_path):
    """Lines are lost, whole ones arrive, and a line after a torn one begins anew."""
    path = tmp_path / "pipe"
    os.mkfifo(path)
    with pytest.raises(CannotServe, match="No such device"):
        RequestLog.open(str(path))
    reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    try:
        requests = RequestLog.open(str(path))
        count = 0
        while not requests.lost_lines:
            requests.write(finished())
            count += 1
        taken = _drained(reader)
        requests.write(finished(terminal_state=Life.ERROR))
        taken += _drained(reader)
    finally:
        os.close(reader)

    lines = [line for line in taken.decode().splitlines() if line.endswith("}")]
    states = [json.loads(line)["terminal_state"] for line in lines]
    assert states == ["DONE"] * (count - 1) + ["ERROR"]


def _drained(reader):
    taken = b""
    try:
        while piece := os.read(reader, 1 << 16):
            taken += piece
    except BlockingIOError:
        pass
    return taken


def test_a_torn_line_does_not_spoil_the_next_one(tmp_path):
    """What a full disk took of a line stays alone on its own."""
    path = tmp_path / "requests.jsonl"
    requests = RequestLog.open(str(path))
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, limits[1]))
    try:
        requests.write(finished())
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    requests.write(finished(terminal_state=Life.ERROR))
    requests.write(finished())

    torn, *lines = path.read_text().splitlines()
    assert (len(torn), requests.lost_lines) == (100, 1)
    assert [json.loads(line)["terminal_state"] for line in lines] == ["ERROR", "DONE"]


def test_the_page_explains_every_field_of_a_line():
    """docs/metrics.md, or docs/http.md for what the `flashrt` block has too."""
    pages = "".join((ROOT / "docs" / name).read_text() for name in ("metrics.md", "http.md"))
    assert [name for name in json.loads(line_of(finished())) if f"`{name}`" not in pages] == []
