"""What `/health` says, as far as `flashrt top` shows it. Sizes in tokens unless named otherwise."""

from typing import Any

import msgspec


class Capsules(msgspec.Struct):
    """Saved states, and what became of those that are gone."""

    count: int = 0
    bytes: int = 0
    budget_bytes: int = 0
    pinned: int = 0
    evicted: int = 0
    host_count: int = 0
    host_bytes: int = 0
    host_budget_bytes: int = 0
    disk_count: int = 0
    disk_bytes: int = 0
    disk_budget_bytes: int = 0


class Totals(msgspec.Struct):
    """What all requests since the start came to."""

    requests: dict[str, int] = {}
    errors: dict[str, int] = {}
    prefix_actions: dict[str, int] = {}
    prefix_misses: dict[str, int] = {}
    prompt_tokens: int = 0
    cached_tokens: int = 0
    median_first_delta_ms: float | None = None
    median_decode_tok_per_s: float | None = None


class Prefill(msgspec.Struct):
    """How far a prompt is."""

    total_tokens: int
    cached_tokens: int
    processed_tokens: int
    ms: float


class Request(msgspec.Struct):
    """A request that is not over; what is None is not known before the engine works on it."""

    request_id: str
    state: str
    age_ms: float
    prompt_tokens: int
    leaving: bool = False
    prefix_action: str | None = None
    completion_tokens: int | None = None
    prefill: Prefill | None = None


class Finished(msgspec.Struct):
    """A request that is over. `miss`: a kind, and `message` and `byte` where there is one."""

    request_id: str
    terminal_state: str
    error_kind: str | None
    ended_s: float | None
    prefix_action: str | None
    miss: dict[str, Any] | None
    prompt_tokens: int
    cached_tokens: int
    completion_tokens: int
    queued_ms: float | None
    first_delta_ms: float | None
    decode_tok_per_s: float | None


class Hot(msgspec.Struct):
    """The session whose state is live."""

    session: str
    namespace: str
    tokens: int


class Activity(msgspec.Struct):
    """What goes on at this moment; `recent` has the newest first."""

    rendering: int
    requests: list[Request]
    hot: Hot | None
    capsule_kinds: dict[str, int]
    prefill_tok_per_s: float | None
    decode_tok_per_s: float | None
    recent: list[Finished]


class Health(msgspec.Struct):
    """The whole answer. No `activity`: the server wants a key for that."""

    status: str
    model: str
    max_model_len: int
    queued: int
    running: dict[str, Any] | None
    capsules: Capsules
    totals: Totals
    activity: Activity | None = None
