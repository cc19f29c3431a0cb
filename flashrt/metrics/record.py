"""The record of one request: the `flashrt` block, the log lines and all totals are views of it."""

import re
from collections.abc import Mapping, Sequence

import attrs

from flashrt.errors import FlashRTError
from flashrt.fsm.lifecycle import Life
from flashrt.metrics.generation import GenerationStats


@attrs.define
class RequestRecord:
    """What happened to one request. Times are seconds of one monotonic clock; sizes are tokens.

    Written on the trio loop only. `enqueued_at` .. `finished_at` are the mission's four stamps.
    """

    request_id: str
    created: int
    enqueued_at: float
    enqueued_unix_s: float = 0.0
    """The wall clock at `enqueued_at`."""
    tokenize_ms: float = 0.0
    seed: int = 0
    prompt_ids: Sequence[int] = ()
    started_at: float | None = None
    prefilled_at: float | None = None
    first_token_at: float | None = None
    finished_at: float | None = None
    session: str | None = None
    """Whose turn it was, by the name that session calls go by."""
    operation: str | None = None
    """Which session call it was; None: a request for an answer."""
    prefix_action: str | None = None
    cached_tokens: int = 0
    processed_tokens: int = 0
    """How far the prompt is processed, what was cached included."""
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
    error_kind: str | None = None
    """Which error it was, without its words: those may quote what the client sent."""
    closed: bool = False
    """Whether it was counted; see `Ledger.close`."""

    def fail(self, error: FlashRTError) -> None:
        """Note why there is no whole answer."""
        self.error, self.error_kind = str(error), kind_of(type(error))

    @property
    def prompt_tokens(self) -> int:
        """Ids of the prompt as it was really used."""
        return len(self.prompt_ids)

    @property
    def new_prefill_tokens(self) -> int:
        """Prompt ids that had to be computed; 0 if the engine never took it up."""
        return 0 if self.started_at is None else self.prompt_tokens - self.cached_tokens

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
            "session": self.session,
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


def kind_of(error: type[FlashRTError]) -> str:
    """The class's name as records and series write it: `QueueFull` is "queue_full"."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", error.__name__).lower()


def _plain(found: Mapping[str, object] | None) -> dict[str, object] | None:
    """As a dict: JSON writers know no other mapping."""
    return None if found is None else dict(found)


def _ms(start: float | None, end: float | None) -> float | None:
    if start is None or end is None:
        return None
    return round((end - start) * 1000, 3)
