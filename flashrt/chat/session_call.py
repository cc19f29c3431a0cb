"""What clients ask about their sessions, and what they are told: in no protocol's words."""

from typing import ClassVar, Literal, get_args

import attrs

from flashrt.chat.request import CacheHints


@attrs.frozen
class Mark:
    """A boundary of a session, by at most one of three numbers.

    `turns`: so many boundaries back from the end. `tokens`: it has processed exactly so many.
    `messages`: so many had been exchanged. None given: whoever asks has a default.
    """

    turns: int | None = None
    tokens: int | None = None
    messages: int | None = None


HERE = Mark(turns=0)
LAST_TURN = Mark(turns=1)


@attrs.frozen
class SessionCall:
    """One call. `hints` name the namespace, as those of a request for an answer do."""

    operation: ClassVar[str]
    hints: CacheHints


@attrs.frozen
class CreateSession(SessionCall):
    """A new session: empty, or at a boundary of `session`, or where the state `capsule` stands."""

    operation = "create"
    session: str | None = None
    capsule: str | None = None
    mark: Mark = HERE


@attrs.frozen
class ListSessions(SessionCall):
    """The sessions of the namespace, newest first: at most `limit`, behind the one `after`."""

    operation = "list"
    limit: int
    after: str | None = None


@attrs.frozen
class ShowSession(SessionCall):
    """One session."""

    operation = "show"
    session: str


@attrs.frozen
class DeleteSession(SessionCall):
    """Forget a session, and what was kept for it alone."""

    operation = "delete"
    session: str


@attrs.frozen
class ForkSession(SessionCall):
    """`count` sessions that begin at one boundary of a session, which stays as it is."""

    operation = "fork"
    session: str
    count: int = 1
    mark: Mark = HERE


@attrs.frozen
class UndoSession(SessionCall):
    """Go back to an earlier boundary."""

    operation = "undo"
    session: str
    mark: Mark = LAST_TURN


AnySessionCall = (
    CreateSession | ListSessions | ShowSession | DeleteSession | ForkSession | UndoSession
)
OPERATIONS: tuple[str, ...] = tuple(call.operation for call in get_args(AnySessionCall))


NextTurn = Literal["append", "restore", "rebuild"]


@attrs.frozen
class HeldState:
    """A saved state with which a session's ids begin: `tokens` of them are processed in it.

    `tier`: the memory in which it lies.
    """

    key: str
    tokens: int
    kind: str
    tier: str
    pinned: bool


@attrs.frozen
class ReachableEnd:
    """A boundary that an undo or a fork can name: it is `turns` back from the end.

    `held`: its state need not be computed again.
    """

    turns: int
    tokens: int
    messages: int | None
    held: bool


@attrs.frozen
class SessionReport:
    """A session as it stands. Times are seconds of the server's own clock; sizes are tokens.

    `next_turn`: what the next message begins with: "append" to the live state, "restore" of a saved
    one, or "rebuild". `reusable_tokens` of `tokens` are not computed again by it. Where several
    sessions are told of, `states` and `boundaries` are None.
    """

    name: str
    created_at: float
    used_at: float
    turns: int
    tokens: int
    messages: int | None
    hot: bool
    next_turn: NextTurn
    reusable_tokens: int
    parent: str | None
    states: tuple[HeldState, ...] | None = None
    boundaries: tuple[ReachableEnd, ...] | None = None


@attrs.frozen
class SessionPage:
    """Some sessions, newest first; `has_more`: there are older ones."""

    sessions: tuple[SessionReport, ...]
    has_more: bool = False


@attrs.frozen
class SessionDeleted:
    """A session is forgotten: `states` with it, and `kept_states` stay for living sessions."""

    name: str
    states: int
    kept_states: int


SessionAnswer = SessionReport | SessionPage | SessionDeleted
