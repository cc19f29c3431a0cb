"""Conversations as the server knows them: by content. A client's session id is only a hint."""

from collections import OrderedDict
from collections.abc import Iterator

import attrs

from flashrt.chat.prompt import Wording
from flashrt.chat.visible import Visible
from flashrt.policy.clock import Clock, timeless
from flashrt.policy.journal import Journal, common_length

SESSIONS_BYTES_MAX = 256 << 20
"""What all sessions may hold: a million ids with their texts take some 16 MiB."""

SESSION_BYTES = 1500
"""Of Python's objects: a session without what it says, its names and places among them."""


@attrs.define(eq=False)
class Session:
    """One conversation: what it stood for when its last turn ended well, and how it got there.

    `wording`: what its newest prompt says; `answer`: what was answered to it.
    `first_prompt`: the length of its first prompt, where conversations with one opening part.
    `last_turn`: the length from which on its newest turn added. `turn` counts turns from 1.
    `used_at`: seconds of the registry's clock.
    """

    name: str
    namespace: str
    hint: str | None = None
    journal: Journal = attrs.field(factory=Journal)
    turn: int = 0
    first_prompt: int = 0
    last_turn: int = 0
    used_at: float = 0.0
    wording: Wording | None = None
    answer: Visible | None = None

    def shared(self, packed: bytes) -> int:
        """How many ids of the journal a prompt begins with."""
        return common_length(self.journal.packed, packed)

    @property
    def size_bytes(self) -> int:
        """What it holds; what it shares with others is counted for each."""
        size = SESSION_BYTES + self.journal.size_bytes
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
    ) -> None:
        """`idle_ttl_s`: a session that nobody uses for longer is forgotten; 0: never for that."""
        self._sessions_max = sessions_max
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
        session = Session(f"s{self._made}", namespace, used_at=self._clock())
        self._sessions[session.name] = session
        self.weigh(session)
        return session

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
        return len(self._sessions) > self._sessions_max or self._bytes > self._bytes_max

    def _forget(self, session: Session) -> None:
        del self._sessions[session.name]
        self._bytes -= self._sizes.pop(session.name, 0)
