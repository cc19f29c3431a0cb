"""Conversations as the server knows them: by content. A client's session id is only a hint."""

from collections import OrderedDict
from collections.abc import Iterator

import attrs

from flashrt.chat.prompt import Prompt
from flashrt.chat.visible import Visible
from flashrt.policy.clock import Clock, timeless
from flashrt.policy.journal import Journal, common_length


@attrs.define(eq=False)
class Session:
    """One conversation: what it stood for when its last turn ended well, and how it got there.

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
    prompt: Prompt | None = None
    answer: Visible | None = None

    def shared(self, packed: bytes) -> int:
        """How many ids of the journal a prompt begins with."""
        return common_length(self.journal.packed, packed)


class SessionRegistry:
    """The sessions of all namespaces, least recently used first out.

    One that is forgotten and goes on counts as a new one.
    """

    def __init__(
        self,
        sessions_max: int = 256,
        idle_ttl_s: float = 0.0,
        clock: Clock = timeless,
    ) -> None:
        """`idle_ttl_s`: a session that nobody uses for longer is forgotten; 0: never for that."""
        self._sessions_max = sessions_max
        self._idle_ttl_s = idle_ttl_s
        self._clock = clock
        self._sessions: OrderedDict[str, Session] = OrderedDict()
        self._made = 0

    def __len__(self) -> int:
        return len(self._sessions)

    def open(self, namespace: str) -> Session:
        """A new session."""
        self._made += 1
        session = Session(f"s{self._made}", namespace, used_at=self._clock())
        self._sessions[session.name] = session
        while len(self._sessions) > self._sessions_max:
            self._sessions.popitem(last=False)
        return session

    def use(self, session: Session) -> None:
        """The session is the newest now; one that was forgotten is known again."""
        session.used_at = self._clock()
        self._sessions[session.name] = session
        self._sessions.move_to_end(session.name)

    def expire(self) -> list[Session]:
        """Forget the sessions that were idle for too long, and return them."""
        if not self._idle_ttl_s:
            return []
        before = self._clock() - self._idle_ttl_s
        idle = [session for session in self._sessions.values() if session.used_at < before]
        for session in idle:
            del self._sessions[session.name]
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
