"""One record per request: the log line, the `flashrt` block and the aggregate are views of it."""

import json
import logging
import statistics
from collections import Counter, deque
from collections.abc import Mapping

import attrs

from flashrt.fsm.lifecycle import Life

log = logging.getLogger("flashrt")

RECENT_RECORDS = 256
"""The aggregate's medians are over this many finished requests."""


@attrs.define
class DraftStats:
    """What drafts came to, over the decode steps that had one.

    `tokens`: journal ids that those steps added. `accepted_per_position`: how often the draft's
    first, second, ... id was right and became part of the answer.
    """

    steps: int = 0
    tokens: int = 0
    attempts: int = 0
    accepted_per_position: list[int] = attrs.field(factory=list)

    @property
    def accepts(self) -> int:
        """Drafted ids that became part of the answer."""
        return sum(self.accepted_per_position)

    @property
    def accept_length(self) -> float | None:
        """Journal tokens per decode step that had a draft, mean: 1 if no draft was ever right."""
        return round(self.tokens / self.steps, 3) if self.steps else None

    def add(self, other: "DraftStats") -> None:
        """Add up."""
        self.steps += other.steps
        self.tokens += other.tokens
        self.attempts += other.attempts
        missing = len(other.accepted_per_position) - len(self.accepted_per_position)
        self.accepted_per_position += [0] * missing
        for position, accepts in enumerate(other.accepted_per_position):
            self.accepted_per_position[position] += accepts


@attrs.define
class GenerationStats:
    """How decode went: its steps, and what each drafter's drafts came to.

    Counts what stands. Ids behind an ending inside a burst are attempts and no accepts.
    """

    decode_steps: int = 0
    by_drafter: dict[str, DraftStats] = attrs.field(factory=dict)

    def count(self, tokens: int, drafted: int, accepted: int, drafter: str) -> None:
        """One decode step that added `tokens` ids; of `drafted` ones the first `accepted` stand."""
        self.decode_steps += 1
        if drafted:
            step = DraftStats(1, tokens, drafted, [1] * accepted)
            self.by_drafter.setdefault(drafter, DraftStats()).add(step)

    def add(self, other: "GenerationStats") -> None:
        """Add up."""
        self.decode_steps += other.decode_steps
        for name, drafts in other.by_drafter.items():
            self.by_drafter.setdefault(name, DraftStats()).add(drafts)

    def report(self) -> dict[str, object]:
        """Over all drafters, then each; steps without a draft are in `decode_steps` only."""
        total = DraftStats()
        for drafts in self.by_drafter.values():
            total.add(drafts)
        return {
            "decode_steps": self.decode_steps,
            "spec_attempts": total.attempts,
            "spec_accepts": total.accepts,
            "accept_length": total.accept_length,
            "accepted_per_position": total.accepted_per_position,
            "drafters": {
                name: {
                    "spec_attempts": drafts.attempts,
                    "spec_accepts": drafts.accepts,
                    "accept_length": drafts.accept_length,
                }
                for name, drafts in self.by_drafter.items()
            },
        }


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
    replayed_tokens: int = 0
    """Prompt ids used as they were sampled or rendered earlier, instead of as rendered now."""
    miss: Mapping[str, object] | None = None
    """What broke the prefix: a kind, and the client's message and byte where there is one."""
    pin: Mapping[str, object] | None = None
    """What came of `flashrt_pin_prefix`."""
    lineage: tuple[tuple[int, bool, tuple[int, ...]], ...] = ()
    """How the prompt's state was built: (stop, decoded, ids beyond), see `policy.lineage`."""
    restore_ms: float | None = None
    saved_capsules: int = 0
    capsule_faults: int = 0
    completion_tokens: int = 0
    reasoning_tokens: int = 0
    draft_tokens: int | None = 0
    generation: GenerationStats = attrs.field(factory=GenerationStats)
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

    def report(self) -> dict[str, object]:
        """The `flashrt` block and the log line: the mission's metric fields by their names."""
        return {
            "request_id": self.request_id,
            "terminal_state": self.terminal_state.name if self.terminal_state else None,
            "prefix_action": self.prefix_action,
            "cached_tokens": self.cached_tokens,
            "new_prefill_tokens": self.new_prefill_tokens,
            "replayed_tokens": self.replayed_tokens,
            "miss": _plain(self.miss),
            "pin": _plain(self.pin),
            "restore_ms": self.restore_ms,
            "saved_capsules": self.saved_capsules,
            "queued_ms": self.queued_ms,
            "tokenize_ms": round(self.tokenize_ms, 3),
            "prefill_ms": self.prefill_ms,
            "first_delta_ms": self.first_delta_ms,
            "decode_ms": self.decode_ms,
            "decode_tok_per_s": self.decode_tok_per_s,
            "draft_tokens": "auto" if self.draft_tokens is None else self.draft_tokens,
            **self.generation.report(),
            "graph_capture_count": self.graph_capture_count,
            "seed": self.seed,
        }


@attrs.define
class Ledger:
    """Closes every record exactly once: counts it for /health and writes its log line."""

    by_state: Counter[str] = attrs.field(factory=Counter)
    by_action: Counter[str] = attrs.field(factory=Counter)
    tokens: Counter[str] = attrs.field(factory=Counter)
    misses: Counter[str] = attrs.field(factory=Counter)
    generation: GenerationStats = attrs.field(factory=GenerationStats)
    capsules: Mapping[str, object] = attrs.field(factory=dict)
    """What the capsule store held when the newest step ended."""
    recent: deque[RequestRecord] = attrs.field(factory=lambda: deque(maxlen=RECENT_RECORDS))

    def close(self, record: RequestRecord) -> None:
        """Count and log a record that has its terminal state."""
        assert record.terminal_state is not None, "only finished requests are counted"
        self.by_state[record.terminal_state.name] += 1
        if record.prefix_action is not None:
            self.by_action[record.prefix_action] += 1
        if record.miss is not None:
            self.misses[str(record.miss.get("kind", "unknown"))] += 1
        self.tokens["prompt_tokens"] += record.prompt_tokens
        self.tokens["cached_tokens"] += record.cached_tokens
        self.tokens["completion_tokens"] += record.completion_tokens
        self.generation.add(record.generation)
        self.recent.append(record)
        fields = {**record.report(), "error": record.error}
        line = " ".join(f"{n}={_logged(value)}" for n, value in fields.items() if value is not None)
        log.info("request_done %s", line)

    def report(self) -> dict[str, object]:
        """Counts since start, and medians over the most recent requests."""
        return {
            "requests": dict(self.by_state),
            "prefix_actions": dict(self.by_action),
            "prefix_misses": dict(self.misses),
            **self.tokens,
            **self.generation.report(),
            "median_queued_ms": _median([r.queued_ms for r in self.recent]),
            "median_first_delta_ms": _median([r.first_delta_ms for r in self.recent]),
            "median_decode_tok_per_s": _median([r.decode_tok_per_s for r in self.recent]),
        }


def _logged(value: object) -> str:
    """A value of the log line; lists and objects as JSON in which no space is left."""
    if not isinstance(value, Mapping | list | tuple):
        return str(value)
    text = json.dumps(value, separators=(",", ":"), default=dict)
    return text.replace(" ", "\\u0020")  # between tokens there is none, so it stands in a text


def _plain(found: Mapping[str, object] | None) -> dict[str, object] | None:
    """As a dict: JSON writers know no other mapping."""
    return None if found is None else dict(found)


def _ms(start: float | None, end: float | None) -> float | None:
    if start is None or end is None:
        return None
    return round((end - start) * 1000, 3)


def _median(values: list[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return statistics.median(known) if known else None
