"""Conversations as the server knows them: by content. A client's session id is only a hint."""

from collections import OrderedDict
from collections.abc import Callable, Iterator

import attrs

from flashrt.chat.prompt import Wording
from flashrt.chat.visible import Visible
from flashrt.policy.clock import Clock, timeless
from flashrt.policy.journal import Journal, common_length
from flashrt.policy.turn_ends import END_BYTES, NOTHING, TurnEnd, stands_at

SESSIONS_BYTES_MAX = 256 << 20
"""What all sessions may hold: a million ids with their texts take some 16 MiB."""

REPLAY_BYTES = 250
"""Of Python's objects: the name of what exact replay remembers, and its length."""

SESSION_BYTES = 1800
"""Of Python's objects: a session without what it says, its names and places among them."""


@attrs.define(eq=False)
class Session:
    """One conversation: what it stood for when its last turn ended well, and how it got there.

    `wording`: what its newest prompt says; `answer`: what was answered to it.
    `first_prompt`: the length of its first prompt, where conversations with one opening part.
    `last_turn`: the length from which on its newest turn added. `turn` counts turns from 1.
    `ends`: the boundaries that it has come by, oldest first; the newest is the journal's. `places`:
    what exact replay remembers of it, and how many ids that is. `parent`: the name of the session
    that it was forked from. `created_at`, `used_at`: seconds of the registry's clock.
    """

    name: str
    namespace: str
    hint: str | None = None
    journal: Journal = attrs.field(factory=Journal)
    turn: int = 0
    first_prompt: int = 0
    last_turn: int = 0
    created_at: float = 0.0
    used_at: float = 0.0
    parent: str | None = None
    ends: list[TurnEnd] = attrs.field(factory=list)
    places: dict[str, int] = attrs.field(factory=dict)
    wording: Wording | None = None
    answer: Visible | None = None

    def shared(self, packed: bytes) -> int:
        """How many ids of the journal a prompt begins with."""
        return common_length(self.journal.packed, packed)

    @property
    def end(self) -> TurnEnd:
        """The boundary at which it stands."""
        return self.ends[-1] if self.ends else NOTHING

    def stands(self, packed: bytes) -> int:
        """How many ids it has processed up to the last boundary that a prompt does not leave."""
        shared = self.shared(packed)
        kept = shared >= self.journal.processed
        return self.journal.processed if kept else stands_at(self.ends, shared).length

    def commit(self, journal: Journal, messages: int | None) -> None:
        """Its newest turn has ended well: the journal is its own now, and ends at a boundary.

        Of the earlier ones those stay that this turn has not left.
        """
        stays = min(self.last_turn, self.shared(journal.packed))
        self.ends = [end for end in self.ends if end.length <= stays]
        pending = next(iter(journal.pending), None)
        self.ends.append(TurnEnd(journal.processed, pending, self.turn, self.last_turn, messages))
        self.journal = journal

    def rewind(self, end: TurnEnd) -> None:
        """Stand at an earlier boundary, as if nothing had come after it."""
        if end != self.end:
            said = self.wording if end.messages else None
            self.wording = None if said is None else said.until(end.messages or 0)
            self.answer = None
        self.ends = [earlier for earlier in self.ends if earlier.length <= end.length]
        self.journal = self.journal_at(end)
        self.turn, self.last_turn = end.turn, end.start
        if not end.length:
            self.first_prompt = 0

    def journal_at(self, end: TurnEnd) -> Journal:
        """What it stood for at a boundary of its own."""
        pending = () if end.pending is None else (end.pending,)
        ids = (*self.journal.ids[: end.length], *pending)
        return Journal.of(ids, end.length, self.journal.lineage_at(end.length))

    def inherit(self, parent: "Session", end: TurnEnd) -> None:
        """Begin where `parent` stood at `end`; it keeps all that it has."""
        self.parent = parent.name
        self.journal, self.ends = parent.journal, list(parent.ends)
        self.wording, self.answer = parent.wording, parent.answer
        self.first_prompt = parent.first_prompt
        self.places = {name: ids for name, ids in parent.places.items() if ids <= end.length + 1}
        self.rewind(end)

    @property
    def size_bytes(self) -> int:
        """What it holds; what it shares with others is counted for each."""
        size = SESSION_BYTES + self.journal.size_bytes
        size += END_BYTES * len(self.ends) + REPLAY_BYTES * len(self.places)
        size += 0 if self.wording is None else self.wording.size_bytes
        return size + (0 if self.answer is None else self.answer.size_bytes)


class SessionRegistry:
    """The sessions of all namespaces, least recently used first out, bounded in number and bytes.

    One that is forgotten and goes on counts as a new one. The newest stays, whatever it holds.
    """

    def __init__(
        self,
        sessions_max: int = 256,
        idle_ttl_s: float = 0.0,
        clock: Clock = timeless,
        bytes_max: int = SESSIONS_BYTES_MAX,
        new_name: Callable[[], str] = lambda: "",
    ) -> None:
        """`idle_ttl_s`: a session that nobody uses for longer is forgotten; 0: never for that.

        `new_name`: a name that nobody can guess; without one sessions are counted.
        """
        self.sessions_max = sessions_max
        self._new_name = new_name
        self._idle_ttl_s = idle_ttl_s
        self._clock = clock
        self._bytes_max = bytes_max
        self._sessions: OrderedDict[str, Session] = OrderedDict()
        self._sizes: dict[str, int] = {}
        self._bytes = 0
        self._made = 0

    def __len__(self) -> int:
        return len(self._sessions)

    @property
    def held_bytes(self) -> int:
        """What the sessions hold."""
        return self._bytes

    def open(self, namespace: str) -> Session:
        """A new session."""
        self._made += 1
        now = self._clock()
        name = self._new_name() or f"s{self._made}"
        session = Session(name, namespace, created_at=now, used_at=now)
        self._sessions[session.name] = session
        self.weigh(session)
        return session

    def adopt(self, session: Session) -> None:
        """Know a session of an earlier process, unless one of its name is known."""
        if session.name not in self._sessions:
            self._sessions[session.name] = session
            self.weigh(session)

    @property
    def now(self) -> float:
        """The registry's clock."""
        return self._clock()

    def all_newest(self) -> Iterator[Session]:
        """The sessions of all namespaces, newest first."""
        return reversed(self._sessions.values())

    def use(self, session: Session) -> None:
        """The session is the newest now; one that was forgotten is known again."""
        session.used_at = self._clock()
        self._sessions[session.name] = session
        self._sessions.move_to_end(session.name)

    def weigh(self, session: Session) -> None:
        """What a session holds has changed: count it anew, and let the oldest ones go for it.

        Takes milliseconds for a long conversation, so it is for the end of a turn.
        """
        if session.name not in self._sessions:
            return
        size = session.size_bytes
        self._bytes += size - self._sizes.get(session.name, 0)
        self._sizes[session.name] = size
        while len(self._sessions) > 1 and self._is_overfull:
            self._forget(next(iter(self._sessions.values())))

    def expire(self) -> list[Session]:
        """Forget the sessions that were idle for too long, and return them."""
        if not self._idle_ttl_s:
            return []
        before = self._clock() - self._idle_ttl_s
        idle = [session for session in self._sessions.values() if session.used_at < before]
        for session in idle:
            self._forget(session)
        return idle

    def get(self, name: str) -> Session | None:
        """The session of that name, if it is still known."""
        return self._sessions.get(name)

    def named(self, namespace: str, name: str | None) -> Session | None:
        """The session of that name, if it is this namespace's (G10)."""
        session = None if name is None else self._sessions.get(name)
        return session if session is not None and session.namespace == namespace else None

    def clock(self) -> float:
        """Seconds now, as sessions are stamped with them."""
        return self._clock()

    def forget(self, session: Session) -> None:
        """The session is deleted; what it holds otherwise is not touched."""
        if session.name in self._sessions:
            self._forget(session)

    def hinted(self, namespace: str, hint: str | None) -> Session | None:
        """The newest session of the namespace that a client called by `hint`."""
        if hint is None:
            return None
        return next((s for s in self.newest(namespace) if s.hint == hint), None)

    def newest(self, namespace: str) -> Iterator[Session]:
        """The sessions of a namespace, newest first."""
        return (s for s in reversed(self._sessions.values()) if s.namespace == namespace)

    # -- inside ----------------------------------------

    @property
    def _is_overfull(self) -> bool:
        return len(self._sessions) > self.sessions_max or self._bytes > self._bytes_max

    def _forget(self, session: Session) -> None:
        del self._sessions[session.name]
        self._bytes -= self._sizes.pop(session.name, 0)
