"""One record per request: the log line, the `flashrt` block and the aggregate are views of it."""

import logging
import statistics
from collections import Counter, deque

import attrs

from flashrt.fsm.lifecycle import Life

log = logging.getLogger("flashrt")

RECENT_RECORDS = 256
"""The aggregate's medians are over this many finished requests."""


@attrs.define
class RequestRecord:
    """What happened to one request. Times are seconds of one monotonic clock; sizes are tokens.

    Written on the trio loop only. `enqueued_at` .. `finished_at` are the mission's four stamps.
    """

    request_id: str
    created: int
    enqueued_at: float
    tokenize_ms: float = 0.0
    seed: int = 0
    prompt_ids: tuple[int, ...] = ()
    started_at: float | None = None
    prefilled_at: float | None = None
    first_token_at: float | None = None
    finished_at: float | None = None
    prefix_action: str | None = None
    cached_tokens: int = 0
    completion_tokens: int = 0
    reasoning_tokens: int = 0
    spec_attempts: int = 0
    spec_accepts: int = 0
    decode_steps: int = 0
    graph_capture_count: int = 0
    terminal_state: Life | None = None
    error: str | None = None

    @property
    def prompt_tokens(self) -> int:
        """Ids of the prompt as it was really used."""
        return len(self.prompt_ids)

    @property
    def new_prefill_tokens(self) -> int:
        """Prompt ids that had to be computed."""
        return self.prompt_tokens - self.cached_tokens

    @property
    def queued_ms(self) -> float | None:
        """From admission to the engine."""
        return _ms(self.enqueued_at, self.started_at)

    @property
    def prefill_ms(self) -> float | None:
        """From the engine's start on this request to the prompt processed."""
        return _ms(self.started_at, self.prefilled_at)

    @property
    def first_delta_ms(self) -> float | None:
        """From admission to the first accepted token."""
        return _ms(self.enqueued_at, self.first_token_at)

    @property
    def decode_ms(self) -> float | None:
        """From the prompt processed to the end."""
        return _ms(self.prefilled_at, self.finished_at)

    @property
    def decode_tok_per_s(self) -> float | None:
        """Sampled tokens over the time that decode took."""
        if not self.decode_ms or not self.completion_tokens:
            return None
        return round(self.completion_tokens / self.decode_ms * 1000, 2)

    @property
    def accept_length(self) -> float | None:
        """Journal tokens per decode step, mean."""
        if not self.decode_steps:
            return None
        return round(self.completion_tokens / self.decode_steps, 3)

    def report(self) -> dict[str, object]:
        """The `flashrt` block and the log line: the mission's metric fields by their names."""
        return {
            "request_id": self.request_id,
            "terminal_state": self.terminal_state.name if self.terminal_state else None,
            "prefix_action": self.prefix_action,
            "cached_tokens": self.cached_tokens,
            "new_prefill_tokens": self.new_prefill_tokens,
            "queued_ms": self.queued_ms,
            "tokenize_ms": round(self.tokenize_ms, 3),
            "prefill_ms": self.prefill_ms,
            "first_delta_ms": self.first_delta_ms,
            "decode_ms": self.decode_ms,
            "decode_tok_per_s": self.decode_tok_per_s,
            "spec_attempts": self.spec_attempts,
            "spec_accepts": self.spec_accepts,
            "accept_length": self.accept_length,
            "graph_capture_count": self.graph_capture_count,
            "seed": self.seed,
        }


@attrs.define
class Ledger:
    """Closes every record exactly once: counts it for /health and writes its log line."""

    by_state: Counter[str] = attrs.field(factory=Counter)
    by_action: Counter[str] = attrs.field(factory=Counter)
    tokens: Counter[str] = attrs.field(factory=Counter)
    recent: deque[RequestRecord] = attrs.field(factory=lambda: deque(maxlen=RECENT_RECORDS))

    def close(self, record: RequestRecord) -> None:
        """Count and log a record that has its terminal state."""
        assert record.terminal_state is not None, "only finished requests are counted"
        self.by_state[record.terminal_state.name] += 1
        if record.prefix_action is not None:
            self.by_action[record.prefix_action] += 1
        self.tokens["prompt_tokens"] += record.prompt_tokens
        self.tokens["cached_tokens"] += record.cached_tokens
        self.tokens["completion_tokens"] += record.completion_tokens
        self.recent.append(record)
        fields = {**record.report(), "error": record.error}
        line = " ".join(f"{name}={value}" for name, value in fields.items() if value is not None)
        log.info("request_done %s", line)

    def report(self) -> dict[str, object]:
        """Counts since start, and medians over the most recent requests."""
        return {
            "requests": dict(self.by_state),
            "prefix_actions": dict(self.by_action),
            **self.tokens,
            "median_queued_ms": _median([r.queued_ms for r in self.recent]),
            "median_first_delta_ms": _median([r.first_delta_ms for r in self.recent]),
            "median_decode_tok_per_s": _median([r.decode_tok_per_s for r in self.recent]),
        }


def _ms(start: float | None, end: float | None) -> float | None:
    if start is None or end is None:
        return None
    return round((end - start) * 1000, 3)


def _median(values: list[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return statistics.median(known) if known else None
