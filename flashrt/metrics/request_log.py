"""`--request-log`: one JSON line per request, without a word of prompts, answers or keys."""

import errno
import logging
import os
from datetime import UTC, datetime
from pathlib import Path

import attrs
import msgspec

from flashrt.errors import CannotServe
from flashrt.metrics.record import RequestRecord

log = logging.getLogger("flashrt")

VERSION = 1
"""Grows when a field goes away or changes its meaning; a new field changes nothing for readers."""

STAMPS = ("enqueued_at", "started_at", "first_token_at", "finished_at")
"""The mission's four, in their order."""


@attrs.define
class RequestLog:
    """Appends a line for each record. Where the disk fails, lines are lost and nothing else.

    The file is opened for each line, so it may be moved away or deleted at any time, and needs no
    signal. Nothing waits: a pipe that is full, or that nobody reads, loses the line.
    """

    path: Path
    lost_lines: int = 0
    _failing: bool = False
    _torn: bool = False

    @classmethod
    def open(cls, path: str) -> "RequestLog":
        """A log that can be written. Raises CannotServe."""
        opened = cls(Path(path))
        try:
            opened.append(b"")
        except OSError as error:
            raise CannotServe(f"--request-log: cannot write {path}: {error.strerror}") from None
        return opened

    def append(self, line: bytes) -> None:
        """Write a line in one piece. Raises OSError."""
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NONBLOCK
        file = os.open(self.path, flags, 0o640)
        try:
            # A full disk may have taken the beginning of the line before.
            whole = b"\n" * self._torn + line
            written = os.write(file, whole)
        finally:
            os.close(file)
        if written < len(whole):
            self._torn = True
            raise OSError(errno.ENOSPC, f"only {written} of {len(whole)} bytes were taken")
        self._torn = False

    def write(self, record: RequestRecord) -> None:
        """The line of a record. An error is logged when it begins, and when it is over."""
        try:
            self.append(line_of(record))
        except OSError as error:
            self.lost_lines += 1
            if not self._failing:
                log.error(
                    "--request-log: cannot write %s: %s; lines are lost until it can be written",
                    self.path,
                    error.strerror,
                )
            self._failing = True
            return
        if self._failing:
            log.warning("--request-log: %s is written again", self.path)
        self._failing = False


def line_of(record: RequestRecord) -> bytes:
    """The record as one line of JSON."""
    return msgspec.json.encode(fields_of(record)) + b"\n"


def fields_of(record: RequestRecord) -> dict[str, object]:
    """What a line has: the report's fields, the stamps, sizes, and the error's kind."""
    enqueued = datetime.fromtimestamp(record.enqueued_unix_s, UTC)
    return {
        "version": VERSION,
        "enqueued_at": enqueued.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        "stamps_ms": {name: _since(record, name) for name in STAMPS},
        **record.report(),
        "operation": record.operation,
        "prompt_tokens": record.prompt_tokens,
        "completion_tokens": record.completion_tokens,
        "reasoning_tokens": record.reasoning_tokens,
        "capsule_faults": record.capsule_faults,
        "error_kind": record.error_kind,
    }


def _since(record: RequestRecord, stamp: str) -> float | None:
    """Milliseconds from `enqueued_at` to a stamp; None: it did not come to that."""
    at: float | None = getattr(record, stamp)
    return None if at is None else round((at - record.enqueued_at) * 1000, 3)
