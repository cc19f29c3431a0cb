"""The input items of an answer, page by page, as the API shows them."""

from collections.abc import Mapping, Sequence
from typing import Any

import attrs
import msgspec

from flashrt.chat.request import Json
from flashrt.errors import BadRequest

PAGE_MAX = 100
PAGE_DEFAULT = 20

PARTS = {"assistant": "output_text"}
"""The kind of part that a text is in a message of a role; of all others it is input."""


class ItemList(msgspec.Struct):
    """A page of items."""

    data: list[dict[str, Any]]
    first_id: str | None
    last_id: str | None
    has_more: bool
    object: str = "list"


@attrs.frozen
class Page:
    """Which items are wanted: so many behind the one of an id, the newest first or last."""

    limit: int = PAGE_DEFAULT
    newest_first: bool = True
    after: str | None = None


def read_page(query: Mapping[str, Sequence[str]]) -> Page:
    """From the target's parameters; others are ignored. Raises BadRequest."""
    given = {name: values[-1] for name, values in query.items() if values}
    limit, order = given.get("limit", str(PAGE_DEFAULT)), given.get("order", "desc")
    if not (limit.isascii() and limit.isdecimal() and 1 <= int(limit[:9]) <= PAGE_MAX):
        raise BadRequest(
            f"`limit` is {limit[:20]!r}; it must be from 1 to {PAGE_MAX}.", param="limit"
        )
    if order not in ("asc", "desc"):
        raise BadRequest(f'`order` is {order[:20]!r}; it must be "asc" or "desc".', param="order")
    return Page(int(limit), order == "desc", given.get("after"))


def item_page(response_id: str, texts: Sequence[bytes], page: Page) -> bytes:
    """A page of the items that an answer was given to, each with an id."""
    items = [shown(msgspec.json.decode(text), f"{response_id}_{i}") for i, text in enumerate(texts)]
    if page.newest_first:
        items.reverse()
    ids = [item["id"] for item in items]
    if page.after is not None and page.after not in ids:
        raise BadRequest(f"`after` is {page.after[:80]!r}, which is no item here.", param="after")
    start = 0 if page.after is None else ids.index(page.after) + 1
    some = items[start : start + page.limit]
    first, last = (some[0]["id"], some[-1]["id"]) if some else (None, None)
    return msgspec.json.encode(ItemList(some, first, last, len(items) > start + page.limit))


def shown(item: Json, place: str) -> Json:
    """An item in full; what the client left out is filled in. `place` names it within its kind."""
    kind = item.get("type") or "message"
    whole = {**item, "type": kind, "id": item.get("id") or f"{kind}_{place}"}
    if kind != "message":
        return whole if kind == "reasoning" else {"status": "completed", **whole}
    kind = PARTS.get(item.get("role", "user"), "input_text")
    content = item.get("content") or []
    parts = content if isinstance(content, list) else [content]
    return {"status": "completed", **whole, "content": [_part(part, kind) for part in parts]}


def _part(part: Any, kind: str) -> Json:
    """A part in full. Clients have other words for a text than the API shows."""
    given: Json = part if isinstance(part, dict) else {"type": "text", "text": part}
    whole = {**given, "type": kind} if given.get("type") == "text" else given
    return {"annotations": [], **whole} if whole.get("type") == "output_text" else whole
