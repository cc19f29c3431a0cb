"""Where every record ends: counted, logged, and written to the request log, once."""

import json
import logging
import statistics
from collections import Counter, deque
from collections.abc import Mapping, Sequence

import attrs

from flashrt.metrics.generation import GenerationStats
from flashrt.metrics.histogram import Histogram
from flashrt.metrics.record import RequestRecord
from flashrt.metrics.request_log import RequestLog

log = logging.getLogger("flashrt")

RECENT_RECORDS = 256
"""The aggregate's medians are over this many finished requests."""

TOKENS = ("prompt_tokens", "cached_tokens", "completion_tokens")

UNKNOWN_MISS = "unknown"
"""The kind of a miss whose report names none."""

TIMES = ("tokenize_ms", "queued_ms", "restore_ms", "prefill_ms", "first_delta_ms", "decode_ms")
SECONDS = (
    *(0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5),
    *(1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0),
)
TOKENS_PER_S = (1.0, 2.5, 5.0, 10.0, 20.0, 35.0, 50.0, 75.0, 100.0, 150.0, 200.0, 300.0, 500.0)


@attrs.frozen
class Recent:
    """What is kept of a record for a while: counts and times, and not the ids of its prompt."""

    request_id: str
    terminal_state: str
    error_kind: str | None
    prefix_action: str | None
    miss: Mapping[str, object] | None
    prompt_tokens: int
    cached_tokens: int
    completion_tokens: int
    started_at: float | None
    finished_at: float | None
    queued_ms: float | None
    prefill_ms: float | None
    first_delta_ms: float | None
    decode_tok_per_s: float | None

    @classmethod
    def of(cls, record: RequestRecord) -> "Recent":
        """What is kept of a record that has its terminal state."""
        assert record.terminal_state is not None, "a request that is not over is not a recent one"
        return cls(
            record.request_id,
            record.terminal_state.name,
            record.error_kind,
            record.prefix_action,
            None if record.miss is None else dict(record.miss),
            record.prompt_tokens,
            record.cached_tokens,
            record.completion_tokens,
            record.started_at,
            record.finished_at,
            record.queued_ms,
            record.prefill_ms,
            record.first_delta_ms,
            record.decode_tok_per_s,
        )

    def report(self, now: float) -> dict[str, object]:
        """For /health. `ended_s`: seconds since its end."""
        fields = attrs.asdict(self)
        del fields["started_at"]
        ended_at = fields.pop("finished_at")
        return {**fields, "ended_s": None if ended_at is None else round(now - ended_at, 1)}


@attrs.define
class Ledger:
    """Closes every record exactly once: counts it, and writes its log lines. Trio loop only."""

    request_log: RequestLog | None = None
    by_state: Counter[str] = attrs.field(factory=Counter)
    by_action: Counter[str] = attrs.field(factory=Counter)
    tokens: Counter[str] = attrs.field(factory=Counter)
    """Of answers, and of prompts that the engine took up: a refused one costs nobody a token."""
    misses: Counter[str] = attrs.field(factory=Counter)
    errors: Counter[str] = attrs.field(factory=Counter)
    """Kinds of errors of the requests that ended as ERROR, REJECTED or CANCELLED, and of session
    calls that were refused when their turn had come."""
    generation: GenerationStats = attrs.field(factory=GenerationStats)
    graph_captures: int = 0
    capsule_faults: int = 0
    """Saved states that could not be made, those behind an end among them; the worker counts."""
    times: Mapping[str, Histogram] = attrs.field(
        factory=lambda: {name: Histogram(SECONDS) for name in TIMES}
    )
    """In seconds, by the name of the record's field."""
    speeds: Histogram = attrs.field(factory=lambda: Histogram(TOKENS_PER_S))
    """Tokens of the answer per second of decode."""
    capsules: Mapping[str, object] = attrs.field(factory=dict)
    """What the capsule store held when the newest step ended."""
    recent: deque[Recent] = attrs.field(factory=lambda: deque(maxlen=RECENT_RECORDS))

    def close(self, record: RequestRecord) -> None:
        """Count and log a record that has its terminal state."""
        assert record.terminal_state is not None, "only finished requests are counted"
        assert not record.closed, f"the record of {record.request_id} is counted already"
        record.closed = True
        self._count(record)
        self._measure(record)
        self.recent.append(Recent.of(record))
        if log.isEnabledFor(logging.INFO):  # the client waits for its end while the line is made
            log.info("request_done %s", _line(record))
        if self.request_log is not None:
            self.request_log.write(record)

    def report(self) -> dict[str, object]:
        """Counts since start, and medians over the most recent requests."""
        return {
            "requests": dict(self.by_state),
            "errors": dict(self.errors),
            "prefix_actions": dict(self.by_action),
            "prefix_misses": dict(self.misses),
            **{name: self.tokens[name] for name in TOKENS},
            **self.generation.report(),
            "graph_capture_count": self.graph_captures,
            "median_queued_ms": _median([r.queued_ms for r in self.recent]),
            "median_first_delta_ms": _median([r.first_delta_ms for r in self.recent]),
            "median_decode_tok_per_s": _median([r.decode_tok_per_s for r in self.recent]),
        }

    def _count(self, record: RequestRecord) -> None:
        assert record.terminal_state is not None, "checked by `close`"
        self.by_state[record.terminal_state.name] += 1
        if record.prefix_action is not None:
            self.by_action[record.prefix_action] += 1
            self.tokens["prompt_tokens"] += record.prompt_tokens
            self.tokens["cached_tokens"] += record.cached_tokens
        if record.miss is not None:
            self.misses[str(record.miss.get("kind", UNKNOWN_MISS))] += 1
        if record.error_kind is not None:
            self.errors[record.error_kind] += 1
        self.tokens["completion_tokens"] += record.completion_tokens
        self.graph_captures += record.graph_capture_count
        self.generation.add(record.generation)

    def _measure(self, record: RequestRecord) -> None:
        for name, histogram in self.times.items():
            ms = getattr(record, name)
            if ms is not None:
                histogram.observe(ms / 1000)
        if record.decode_tok_per_s is not None:
            self.speeds.observe(record.decode_tok_per_s)


def _line(record: RequestRecord) -> str:
    """What is known of it, by name."""
    fields = {**record.report(), "operation": record.operation, "error": record.error}
    return " ".join(f"{n}={_logged(value)}" for n, value in fields.items() if value is not None)


def _logged(value: object) -> str:
    """A value of the log line; lists and objects as JSON in which no space is left."""
    if not isinstance(value, Mapping | list | tuple):
        return str(value)
    text = json.dumps(value, separators=(",", ":"), default=dict)
    return text.replace(" ", "\\u0020")  # between tokens there is none, so it stands in a text


def _median(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return statistics.median(known) if known else None
