"""The lines of `flashrt top`: figures, then tables, made from one answer of `/health`."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, TypeVar

import attrs

from flashrt.client.health import Activity, Capsules, Finished, Health, Prefill, Request
from flashrt.client.screen import CYAN, DIM, RED

NEEDS_A_KEY = "request by request: with an API key only (--api-key, or FLASHRT_API_KEY)"
WRONG_KEY = "request by request: the server does not know this API key"
LABEL_WIDTH = 14

T = TypeVar("T")


@attrs.frozen
class Line:
    """One line, and the escape sequence that begins it on a terminal."""

    text: str
    style: str = ""


@attrs.frozen
class Column:
    """A column of a table: its head, and what it shows of a row. Numbers stand right."""

    head: str
    show: Callable[[Any], str]
    is_number: bool = False


def board(health: Health, *, has_key: bool) -> Iterator[Line]:
    """All lines, what matters most first: a small terminal shows the beginning."""
    activity = health.activity
    style = CYAN if health.status == "ready" else RED
    model = f"{health.model}, window {health.max_model_len:,} tokens"
    yield Line(f"FlashRT  {_words(health.status)}   {model}", style)
    for label, text in _figures(health):
        yield Line(f"{label:{LABEL_WIDTH}}{text}")
    yield Line("")
    if activity is None:
        yield Line(WRONG_KEY if has_key else NEEDS_A_KEY, RED)
        return
    yield from _table(REQUESTS, activity.requests)
    yield Line("")
    yield from _table(RECENT, activity.recent)


# -- figures ---------------------------------------------------------------------------------------


def _figures(health: Health) -> Iterator[tuple[str, str]]:
    totals, activity = health.totals, health.activity
    yield "requests", _requests(health)
    if activity is not None:
        yield "hot session", _hot(activity)
    yield "first token", _first_token(health)
    yield "tokens/s", _speed(health)
    cached = _percent(totals.cached_tokens, totals.prompt_tokens)
    yield "cached", f"{cached} of all prompt tokens"
    yield "saved states", _capsules(health)
    yield "began", _counts(totals.prefix_actions)
    yield "broken by", _counts(totals.prefix_misses)
    ended = _counts(totals.requests)
    yield "ended", f"{ended}; for: {_counts(totals.errors)}" if totals.errors else ended


def _requests(health: Health) -> str:
    running = f"1 in {_words(health.running['state'])}" if health.running else "the engine is idle"
    rendering = health.activity.rendering if health.activity is not None else 0
    rendered = f", {rendering} being rendered" if rendering else ""
    return f"{health.queued} waiting, {running}{rendered}"


def _hot(activity: Activity) -> str:
    hot = activity.hot
    if hot is None:
        return "none"
    return f"{hot.session}, {hot.tokens:,} tokens, in namespace {hot.namespace}"


def _first_token(health: Health) -> str:
    median = f"median {_ms(health.totals.median_first_delta_ms)}"
    recent = health.activity.recent if health.activity is not None else []
    times = [_ms(r.first_delta_ms) for r in recent if r.first_delta_ms is not None]
    return f"{times[0]}, {median}" if times else median


def _speed(health: Health) -> str:
    median = f"median {_rate(health.totals.median_decode_tok_per_s)}"
    if health.activity is None:
        return median
    now, prompts = health.activity.decode_tok_per_s, health.activity.prefill_tok_per_s
    return f"{_rate(now)} now, {median}, prompts {_rate(prompts)} now"


def _capsules(health: Health) -> str:
    held = health.capsules
    kinds = health.activity.capsule_kinds if health.activity is not None else {}
    by_kind = f" ({_counts(kinds)})" if any(kinds.values()) else ""
    return (
        f"{held.count}{by_kind}, {_size(held.bytes)} of {_size(held.budget_bytes)}, "
        f"{_lower_tiers(held)}{held.pinned} pinned, {held.evicted} evicted"
    )


def _lower_tiers(held: Capsules) -> str:
    """What lies on the host and on disk, where the server has them."""
    tiers = (
        ("on the host", held.host_count, held.host_bytes, held.host_budget_bytes),
        ("on disk", held.disk_count, held.disk_bytes, held.disk_budget_bytes),
    )
    return "".join(
        f"{count} {where} ({_size(size)} of {_size(budget)}), "
        for where, count, size, budget in tiers
        if budget
    )


# -- tables ----------------------------------------------------------------------------------------


def _prompt(request: Request) -> str:
    return f"{request.prompt_tokens:,}" if request.prefill is None else _prefill(request.prefill)


def _prefill(prefill: Prefill) -> str:
    return (
        f"{prefill.processed_tokens:,} of {prefill.total_tokens:,}, "
        f"{prefill.cached_tokens:,} cached, {_ms(prefill.ms)}"
    )


def _state(request: Request) -> str:
    return _words(request.state) + (", leaving" if request.leaving else "")


def _ending(request: Finished) -> str:
    return _words(request.error_kind or request.terminal_state)


def _ended(request: Finished) -> str:
    return "-" if request.ended_s is None else f"{_seconds(request.ended_s)} ago"


def _miss(request: Finished) -> str:
    miss = request.miss
    if miss is None:
        return "-"
    message = f", in message {miss['message']}" if "message" in miss else ""
    byte = f" at byte {miss['byte']:,}" if "byte" in miss else ""
    return f"{_words(str(miss.get('kind')))}{message}{byte}"


def _id(request: Request | Finished) -> str:
    return request.request_id[:8]


def _begun(request: Request | Finished) -> str:
    return _words(request.prefix_action or "-")


REQUESTS = (
    Column("now", _id),
    Column("state", _state),
    Column("age", lambda r: _ms(r.age_ms), is_number=True),
    Column("prompt", _prompt),
    Column("begun by", _begun),
    Column("answer", lambda r: _count(r.completion_tokens), is_number=True),
)
RECENT = (
    Column("finished", _id),
    Column("ended", _ended, is_number=True),
    Column("as", _ending),
    Column("prompt", lambda r: _count(r.prompt_tokens), is_number=True),
    Column("cached", lambda r: _count(r.cached_tokens), is_number=True),
    Column("waited", lambda r: _ms(r.queued_ms), is_number=True),
    Column("1st token", lambda r: _ms(r.first_delta_ms), is_number=True),
    Column("answer", lambda r: _count(r.completion_tokens), is_number=True),
    Column("tokens/s", lambda r: _rate(r.decode_tok_per_s), is_number=True),
    Column("begun by", _begun),
    Column("broken by", _miss),
)


def _table(columns: tuple[Column, ...], rows: Iterable[object]) -> Iterator[Line]:
    """A head, and the rows below it in columns as wide as what stands in them."""
    cells = [[column.head for column in columns]]
    cells += [[column.show(row) for column in columns] for row in rows]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    for number, row in enumerate(cells):
        parts = [
            text.rjust(width) if column.is_number else text.ljust(width)
            for column, text, width in zip(columns, row, widths, strict=True)
        ]
        yield Line("  ".join(parts).rstrip(), "" if number else DIM)
    if len(cells) == 1:
        yield Line("none")


# -- how things are written ------------------------------------------------------------------------


def _words(name: str) -> str:
    return name.lower().replace("_", " ")


def _counts(counts: Mapping[str, int]) -> str:
    some = sorted((item for item in counts.items() if item[1]), key=lambda item: -item[1])
    return ", ".join(f"{_words(name)} {count:,}" for name, count in some) or "none"


def _count(count: int | None) -> str:
    return "-" if count is None else f"{count:,}"


def _rate(per_s: float | None) -> str:
    return "-" if per_s is None else f"{per_s:,.{1 if per_s < 10 else 0}f}"


def _ms(ms: float | None) -> str:
    if ms is None:
        return "-"
    return f"{ms:.{1 if ms < 10 else 0}f} ms" if ms < 1000 else _seconds(ms / 1000)


def _seconds(seconds: float) -> str:
    if seconds < 60:
        return f"{seconds:.1f} s"
    return f"{seconds // 60:.0f} min" if seconds < 3600 else f"{seconds // 3600:.0f} h"


def _size(size_bytes: int) -> str:
    for unit, shift in (("KiB", 10), ("MiB", 20)):
        if size_bytes < 1 << (shift + 10):
            return f"{size_bytes / (1 << shift):.0f} {unit}"
    return f"{size_bytes / (1 << 30):.1f} GiB"


def _percent(part: int, whole: int) -> str:
    return f"{100 * part / whole:.0f} %" if whole else "-"
