"""What the server is doing at this moment: for /health, its page and `flashrt top`."""

from collections import deque
from collections.abc import Collection, Iterable, Mapping

import attrs

from flashrt.fsm.lifecycle import Life
from flashrt.metrics.record import RequestRecord
from flashrt.policy.auto_prefix import AutoPrefixPolicy
from flashrt.policy.turn import Answered, Ended, Planned, Prefilled, Progressed, TurnEvent

RATE_WINDOW_S = 5.0
"""A speed "now" is that of the steps which ended so many seconds ago at most."""


class Rate:
    """Tokens per second of the newest steps, over the time that they took."""

    def __init__(self) -> None:
        self._steps: deque[tuple[float, int, float]] = deque()

    def add(self, at: float, tokens: int, seconds: float) -> None:
        """A step that ended at `at`."""
        self._steps.append((at, tokens, seconds))
        self._forget(at)

    def per_s(self, now: float) -> float | None:
        """None: there were no steps lately."""
        self._forget(now)
        seconds = sum(step[2] for step in self._steps)
        return round(sum(step[1] for step in self._steps) / seconds, 2) if seconds else None

    def _forget(self, now: float) -> None:
        while self._steps and self._steps[0][0] < now - RATE_WINDOW_S:
            self._steps.popleft()


@attrs.frozen
class Hot:
    """The live state, where one may be attached to: `tokens` of a session are processed."""

    session: str
    namespace: str
    tokens: int


@attrs.frozen
class Held:
    """What the engine thread holds, as it crosses to the loop.

    `kinds`: saved states by kind; `cache_bytes`: what it remembers beside them.
    """

    hot: Hot | None = None
    kinds: Mapping[str, int] = attrs.field(factory=dict)
    cache_bytes: Mapping[str, int] = attrs.field(factory=dict)

    @classmethod
    def by(cls, policy: AutoPrefixPolicy) -> "Held":
        """At a boundary, on the engine thread."""
        remembered = {
            "sessions": policy.sessions.held_bytes,
            "replay": policy.memory.held_bytes,
        }
        return cls(_hot_of(policy), policy.store.kinds(), remembered)


def _hot_of(policy: AutoPrefixPolicy) -> Hot | None:
    hot = policy.hot
    if hot is None:
        return None
    return Hot(hot.session.name, hot.session.namespace, hot.journal.processed)


class Holdings:
    """Reports of what the engine thread holds, behind each step. Engine thread only.

    Where an answer has grown or come to its end, and nothing else has happened, the live state
    alone is told anew: every token waits for this. What the end of a turn changes, it changes
    behind its end, and is told there.
    """

    def __init__(self, policy: AutoPrefixPolicy) -> None:
        self._policy = policy
        self._capsules, self._held = policy.store.report(), Held.by(policy)

    def behind(self, events: Collection[TurnEvent]) -> tuple[Mapping[str, object], Held]:
        """What the store holds, and what is held in all; `events`: those of the step."""
        if events and all(map(_only_answers, events)):
            live = _hot_of(self._policy)
            return self._capsules, Held(live, self._held.kinds, self._held.cache_bytes)
        self._capsules, self._held = self._policy.store.report(), Held.by(self._policy)
        return self._capsules, self._held


def _only_answers(event: TurnEvent) -> bool:
    return isinstance(event, Answered) or (isinstance(event, Ended) and event.ending is not None)


class Activity:
    """How far the running request is, how fast it goes, and what is held. Trio loop only."""

    def __init__(self) -> None:
        self.held = Held()
        self.decode = Rate()
        self.prefill = Rate()
        self._step_ended_tokens = 0
        self._step_ended_at = 0.0

    def note(
        self, record: RequestRecord, events: Iterable[TurnEvent], at: float, held: Held
    ) -> None:
        """One step of the running request has ended at `at`; its record knows of it already."""
        self.held = held
        for event in events:
            match event:
                case Planned(plan):
                    self._step_ended_tokens, self._step_ended_at = plan.cached_tokens, at
                case Progressed(position):
                    self._fed(position, at)
                case Prefilled():
                    self._fed(record.prompt_tokens, at)
                case Answered(tokens=tokens) if tokens:
                    self.decode.add(at, len(tokens), at - self._step_ended_at)
                    self._step_ended_at = at

    def running(
        self, record: RequestRecord, state: Life, *, leaving: bool, now: float
    ) -> dict[str, object]:
        """The request that the engine works on; `leaving`: it ends at the next boundary."""
        return {
            **waiting(record, state, now=now),
            "leaving": leaving,
            "prefix_action": record.prefix_action,
            "completion_tokens": record.completion_tokens,
            "prefill": {
                "total_tokens": record.prompt_tokens,
                "cached_tokens": record.cached_tokens,
                "processed_tokens": record.processed_tokens,
                "ms": record.prefill_ms or _ms(record.started_at or now, now),
            },
        }

    def _fed(self, position: int, at: float) -> None:
        if position > self._step_ended_tokens:
            self.prefill.add(at, position - self._step_ended_tokens, at - self._step_ended_at)
        self._step_ended_tokens, self._step_ended_at = position, at


def waiting(record: RequestRecord, state: Life, *, now: float) -> dict[str, object]:
    """A request that is not over. `age_ms`: since it was admitted."""
    return {
        "request_id": record.request_id,
        "state": state.name,
        "age_ms": _ms(record.enqueued_at, now),
        "prompt_tokens": record.prompt_tokens,
    }


def _ms(start: float, end: float) -> float:
    return round((end - start) * 1000, 3)
