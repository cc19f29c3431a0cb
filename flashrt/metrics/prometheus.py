"""The series of /metrics: the ledger's totals and the live state, as Prometheus reads them.

Every series is there from the start, with 0: what appears with its first event has no increase
that a query could see.
"""

import math
from collections.abc import Callable, Iterator, Mapping
from itertools import chain

import attrs
from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from flashrt.errors import (
    AnswerCancelled,
    ClientLeft,
    Conflict,
    EngineFailed,
    NotFound,
    PromptTooLong,
    QueueFull,
    ServerStopping,
    Unavailable,
)
from flashrt.fsm.lifecycle import LIFECYCLE, Life
from flashrt.fsm.server import ServerState
from flashrt.metrics.generation import DraftStats
from flashrt.metrics.histogram import Histogram
from flashrt.metrics.ledger import UNKNOWN_MISS, Ledger
from flashrt.metrics.record import kind_of
from flashrt.policy.capsules import COUNTS
from flashrt.policy.miss import MISS_KINDS
from flashrt.policy.prefix import Action
from flashrt.policy.tiers import Tier

PREFIX = "flashrt_"
DRAFTERS = ("mtp", "lookup")
"""Who may draft. What this engine has besides comes with its first draft."""

CACHES = (
    "beginnings",
    "messages",
    "rounds",
    "segments",
    "grammars",
    "sessions",
    "replay",
    "answers",
)
"""What is remembered beside saved states, each within a room of its own."""

ENDINGS = tuple(state.name for state in Life if state in LIFECYCLE.terminal)

RECORDED_ERRORS = (
    PromptTooLong,
    QueueFull,
    Unavailable,
    ServerStopping,
    ClientLeft,
    AnswerCancelled,
    EngineFailed,
    NotFound,
    Conflict,
)
"""Why a request with a record may end without a whole answer."""

ERROR_KINDS = tuple(kind_of(error) for error in RECORDED_ERRORS)
ACTIONS = tuple(action.value for action in Action)
MISSES = (*MISS_KINDS, UNKNOWN_MISS)

TIME_HELP: Mapping[str, str] = {
    "tokenize_ms": "Rendering and tokenizing the prompt.",
    "queued_ms": "From admission to the engine.",
    "restore_ms": "Bringing a saved state back, where one was.",
    "prefill_ms": "From the engine's start on a request to the prompt processed.",
    "first_delta_ms": "From admission to the first token.",
    "decode_ms": "From the prompt processed to the end.",
}
TOKEN_HELP: Mapping[str, str] = {
    "prompt_tokens": "Tokens of prompts that the engine took up, cached ones among them.",
    "cached_tokens": "Tokens of prompts that were not computed again.",
    "completion_tokens": "Tokens of answers.",
}


@attrs.frozen
class Now:
    """What a server is doing at this moment. `running`: requests that the engine works on.

    `cache_bytes`: what it remembers, by the names of `CACHES`.
    """

    state: ServerState
    queued: int
    running: int
    cache_bytes: Mapping[str, int] = attrs.field(factory=dict)


class Series(Collector):
    """All families of one server."""

    def __init__(self, ledger: Ledger, now: Callable[[], Now], *, model: str) -> None:
        self._ledger = ledger
        self._now = now
        self._model = model

    def collect(self) -> Iterator[Metric]:
        """Read everything. On the trio loop, where the ledger changes."""
        return chain(
            self._live(), self._requests(), self._times(), self._drafting(), self._capsules()
        )

    def _live(self) -> Iterator[Metric]:
        now = self._now()
        info = GaugeMetricFamily("flashrt_info", "Always 1; the label names.", labels=["model"])
        info.add_metric([self._model], 1)
        yield info
        states = {state.name.lower(): int(state is now.state) for state in ServerState}
        yield _gauges("server_state", "1 for the state that the server is in.", "state", states)
        yield _gauge("requests_queued", "Requests that wait for the engine.", now.queued)
        yield _gauge("requests_running", "Requests that the engine works on, 0 or 1.", now.running)
        caches = {name: now.cache_bytes.get(name, 0) for name in CACHES}
        yield _gauges("cache_bytes", "What is remembered beside saved states.", "cache", caches)

    def _requests(self) -> Iterator[Metric]:
        ledger = self._ledger
        for name, text, label, known, counts in (
            ("requests", "How requests ended.", "terminal_state", ENDINGS, ledger.by_state),
            ("errors", "Why requests had no whole answer.", "kind", ERROR_KINDS, ledger.errors),
            ("prefix_actions", "Where prompts were taken up.", "action", ACTIONS, ledger.by_action),
            ("prefix_misses", "What broke prefixes.", "kind", MISSES, ledger.misses),
        ):
            yield _counters(name, text, label, {**dict.fromkeys(known, 0), **counts})
        for name, text in TOKEN_HELP.items():
            yield _counter(name, text, ledger.tokens[name])
        lost = 0 if ledger.request_log is None else ledger.request_log.lost_lines
        yield _counter("request_log_lost_lines", "Lines that --request-log did not take.", lost)

    def _times(self) -> Iterator[Metric]:
        for field, text in TIME_HELP.items():
            yield _histogram(seconds_name(field), text, self._ledger.times[field])
        text = "Tokens of an answer over the time that decode took."
        yield _histogram("decode_tokens_per_second", text, self._ledger.speeds)

    def _drafting(self) -> Iterator[Metric]:
        ledger = self._ledger
        by_drafter = {name: DraftStats() for name in DRAFTERS} | ledger.generation.by_drafter
        attempts = {name: drafts.attempts for name, drafts in by_drafter.items()}
        accepts = {name: drafts.accepts for name, drafts in by_drafter.items()}
        yield _counter("decode_steps", "Decode steps.", ledger.generation.decode_steps)
        yield _counters("spec_attempts", "Tokens that were drafted.", "drafter", attempts)
        text = "Drafted tokens that stand in an answer."
        yield _counters("spec_accepts", text, "drafter", accepts)
        text = "CUDA graphs captured while a request ran."
        yield _counter("graph_captures", text, ledger.graph_captures)

    def _capsules(self) -> Iterator[Metric]:
        held = {name: int(str(value)) for name, value in self._ledger.capsules.items()}
        for name, key, text in (
            ("capsules", "count", "Saved states that are held."),
            ("capsules_pinned", "pinned", "Saved states that must stay."),
            ("capsule_bytes", "bytes", "What saved states hold, shared rows counted once."),
            ("capsule_budget_bytes", "budget_bytes", "What saved states may hold."),
        ):
            yield _gauge(name, text, held.get(key, 0))
        for name, key, text in (
            ("capsules_by_tier", "count", "Saved states by where they lie; on disk: with a file."),
            ("capsule_tier_bytes", "bytes", "What they hold there."),
            ("capsule_tier_budget_bytes", "budget_bytes", "What they may hold there."),
        ):
            by_tier = {tier.value: held.get(_tier_key(tier, key), 0) for tier in Tier}
            yield _gauges(name, text, "tier", by_tier)
        events = {name: held.get(name, 0) for name in COUNTS}
        yield _counters("capsule_events", "What became of saved states.", "event", events)
        text = "Saved states that could not be made."
        yield _counter("capsule_faults", text, self._ledger.capsule_faults)


class Exposition:
    """What /metrics says about one server; it shares nothing with another one."""

    def __init__(self, series: Series) -> None:
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(series)
        ProcessCollector(registry=self._registry)

    def text(self) -> bytes:
        """All series in the text format, version 0.0.4."""
        return generate_latest(self._registry)


def seconds_name(field: str) -> str:
    """The series of a field in milliseconds: `queued_ms` is `queued_seconds`."""
    return f"{field.removesuffix('_ms')}_seconds"


def _tier_key(tier: Tier, key: str) -> str:
    """Of a figure of one tier in the store's report; the device's bytes have no word before."""
    return key if tier is Tier.DEVICE and key != "count" else f"{tier.value}_{key}"


def _counter(name: str, text: str, count: int) -> Metric:
    return CounterMetricFamily(PREFIX + name, text, count)


def _counters(name: str, text: str, label: str, counts: Mapping[str, int]) -> Metric:
    return _labelled(CounterMetricFamily(PREFIX + name, text, labels=[label]), counts)


def _gauge(name: str, text: str, number: int) -> Metric:
    return GaugeMetricFamily(PREFIX + name, text, number)


def _gauges(name: str, text: str, label: str, numbers: Mapping[str, int]) -> Metric:
    return _labelled(GaugeMetricFamily(PREFIX + name, text, labels=[label]), numbers)


def _labelled(
    family: CounterMetricFamily | GaugeMetricFamily, numbers: Mapping[str, int]
) -> Metric:
    for value, number in numbers.items():
        family.add_metric([value], number)
    return family


def _histogram(name: str, text: str, values: Histogram) -> Metric:
    buckets = [(_bound(bound), count) for bound, count in values.cumulative()]
    return HistogramMetricFamily(PREFIX + name, text, buckets, values.total)


def _bound(bound: float) -> str:
    """As the text format writes it."""
    return "+Inf" if bound == math.inf else str(bound)
