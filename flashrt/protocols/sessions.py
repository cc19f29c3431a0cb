"""`/v1/sessions`: sessions as an agent names them. Not part of OpenAI's API, in its manners."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Literal

import attrs
import msgspec
from msgspec import Meta

from flashrt.chat.request import CacheHints
from flashrt.chat.session_call import (
    HERE,
    LAST_TURN,
    AnySessionCall,
    CreateSession,
    DeleteSession,
    ForkSession,
    ListSessions,
    Mark,
    SessionAnswer,
    SessionDeleted,
    SessionPage,
    SessionReport,
    ShowSession,
    UndoSession,
)
from flashrt.errors import BadRequest
from flashrt.protocols.fields import read_json

FORKS_MAX = 64
PAGE_DEFAULT, PAGE_MAX = 20, 100

Count = Annotated[int, Meta(ge=0)]
Forks = Annotated[int, Meta(ge=1, le=FORKS_MAX)]


class NamespaceFields(msgspec.Struct, kw_only=True):
    """Whose session it is, as in a request for an answer. Unknown fields are ignored."""

    prompt_cache_key: str | None = None
    cache_salt: str | None = None

    def hints(self) -> CacheHints:
        """What names the namespace."""
        return CacheHints(self.prompt_cache_key, self.cache_salt)


class MarkFields(NamespaceFields, kw_only=True):
    """At which boundary: at most one of these."""

    turns: Count | None = None
    tokens: Count | None = None
    messages: Count | None = None

    def mark(self, default: Mark) -> Mark:
        """The boundary; raises BadRequest where it is named twice."""
        given = {
            name: getattr(self, name)
            for name in ("turns", "tokens", "messages")
            if getattr(self, name) is not None
        }
        if len(given) > 1:
            named = " and ".join(f"`{name}`" for name in given)
            raise BadRequest(f"{named} name a boundary; give one of them.", param=list(given)[1])
        return Mark(**given) if given else default


class CreateSessionFields(MarkFields, kw_only=True):
    """An empty session, or one that begins at a boundary of another, or at a saved state."""

    from_session: str | None = None
    from_capsule: str | None = None


class ForkFields(MarkFields, kw_only=True):
    """`n` sessions at one boundary; without one at the end."""

    n: Forks = 1


class UndoFields(MarkFields, kw_only=True):
    """Back to a boundary; without one over the last turn."""


class CapsuleObject(msgspec.Struct):
    """A saved state with which the session begins; `tier`: the memory in which it lies."""

    id: str
    tokens: int
    kind: str
    tier: str
    pinned: bool


class BoundaryObject(msgspec.Struct):
    """Where a turn ended: `turns` back from the end. `held`: nothing up to it is computed again."""

    turns: int
    tokens: int
    messages: int | None
    held: bool


class SessionObject(msgspec.Struct):
    """A session. `created` and `used` are unix seconds; sizes are tokens.

    `next_turn`: what the next message begins with; `reusable_tokens` of `tokens` are not computed
    again by it. In a list, `capsules` and `boundaries` are null.
    """

    id: str
    created: int
    used: int
    turns: int
    tokens: int
    messages: int | None
    hot: bool
    next_turn: Literal["append", "restore", "rebuild"]
    reusable_tokens: int
    parent: str | None
    capsules: list[CapsuleObject] | None
    boundaries: list[BoundaryObject] | None
    object: Literal["session"] = "session"


class SessionList(msgspec.Struct):
    """Sessions, newest first; `has_more`: there are older ones."""

    data: list[SessionObject]
    has_more: bool = False
    object: Literal["list"] = "list"


class DeletedSession(msgspec.Struct):
    """`capsules` went with it; `kept_capsules` are of use to other sessions."""

    id: str
    capsules: int
    kept_capsules: int
    deleted: bool = True
    object: Literal["session.deleted"] = "session.deleted"


_CREATE = msgspec.json.Decoder(CreateSessionFields)
_FORK = msgspec.json.Decoder(ForkFields)
_UNDO = msgspec.json.Decoder(UndoFields)

Query = Mapping[str, Sequence[str]]
"""The parameters of a target, each with all its values."""


def read_create(body: bytes) -> AnySessionCall:
    """What `POST /v1/sessions` asks for; raises BadRequest."""
    fields = read_json(body, _CREATE)
    mark = fields.mark(HERE)
    if fields.from_session is not None and fields.from_capsule is not None:
        raise BadRequest("Give `from_session` or `from_capsule`, not both.", param="from_capsule")
    if mark is not HERE and fields.from_session is None:
        raise BadRequest(
            "A boundary is one of a session; name it with `from_session`.", param="from_session"
        )
    return CreateSession(fields.hints(), fields.from_session, fields.from_capsule, mark)


def read_fork(session: str, body: bytes) -> AnySessionCall:
    """What a fork asks for; raises BadRequest."""
    fields = read_json(body, _FORK)
    return ForkSession(fields.hints(), session, fields.n, fields.mark(HERE))


def read_undo(session: str, body: bytes) -> AnySessionCall:
    """What an undo asks for; raises BadRequest."""
    fields = read_json(body, _UNDO)
    return UndoSession(fields.hints(), session, fields.mark(LAST_TURN))


def read_list(query: Query) -> AnySessionCall:
    """Which page of sessions is asked for; raises BadRequest."""
    limit = _one(query, "limit")
    if limit is None:
        limit = str(PAGE_DEFAULT)
    if not (limit.isascii() and limit.isdecimal() and len(limit) <= len(str(PAGE_MAX))):
        raise _bad_limit(limit)
    if not 1 <= int(limit) <= PAGE_MAX:
        raise _bad_limit(limit)
    return ListSessions(_hints(query), int(limit), _one(query, "after"))


def read_show(session: str, query: Query) -> AnySessionCall:
    """One session is asked for; raises BadRequest."""
    return ShowSession(_hints(query), session)


def read_delete(session: str, query: Query) -> AnySessionCall:
    """One session is to be forgotten; raises BadRequest."""
    return DeleteSession(_hints(query), session)


def session_body(answer: SessionAnswer, epoch_s: float) -> bytes:
    """What a call has come to. `epoch_s`: the unix time at which the clock of reports began."""
    match answer:
        case SessionReport():
            return msgspec.json.encode(_object(answer, epoch_s))
        case SessionPage(sessions, has_more):
            data = [_object(report, epoch_s) for report in sessions]
            return msgspec.json.encode(SessionList(data, has_more))
        case SessionDeleted(name, states, kept_states):
            return msgspec.json.encode(DeletedSession(name, states, kept_states))


def _object(report: SessionReport, epoch_s: float) -> SessionObject:
    held, ends = report.states, report.boundaries
    return SessionObject(
        id=report.name,
        created=int(epoch_s + report.created_at),
        used=int(epoch_s + report.used_at),
        turns=report.turns,
        tokens=report.tokens,
        messages=report.messages,
        hot=report.hot,
        next_turn=report.next_turn,
        reusable_tokens=report.reusable_tokens,
        parent=report.parent,
        capsules=None
        if held is None
        else [CapsuleObject(s.key, s.tokens, s.kind, s.tier, s.pinned) for s in held],
        boundaries=None if ends is None else [BoundaryObject(**attrs.asdict(end)) for end in ends],
    )


def _hints(query: Query) -> CacheHints:
    return CacheHints(_one(query, "prompt_cache_key"), _one(query, "cache_salt"))


def _one(query: Query, name: str) -> str | None:
    """The one value of a parameter, None if it is not there."""
    values = query.get(name, ())
    if len(values) > 1:
        raise BadRequest(f"`{name}` is given {len(values)} times; give it once.", param=name)
    return values[0] if values else None


def _bad_limit(limit: str) -> BadRequest:
    return BadRequest(
        f"`limit` is {limit[:20]!r}; it must be a number from 1 to {PAGE_MAX}.", param="limit"
    )
