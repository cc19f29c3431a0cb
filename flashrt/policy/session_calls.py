"""Session calls: create, list, show, delete, fork and undo, as steps between two turns.

A fork or an undo says where a session stands; what its state is made from is decided by the next
turn's plan, as ever. So each of them works where no state is held any more, and only costs time.
"""

from collections.abc import Generator

import attrs

from flashrt.chat.deltas import Ending, FinishReason
from flashrt.chat.session_call import (
    AnySessionCall,
    CreateSession,
    DeleteSession,
    ForkSession,
    ListSessions,
    SessionAnswer,
    SessionDeleted,
    SessionPage,
    SessionReport,
    ShowSession,
    UndoSession,
)
from flashrt.engine.protocol import ID_BYTES
from flashrt.errors import Conflict, EngineFailed, NotFound, Refused
from flashrt.fsm.lifecycle import LifeEvent
from flashrt.policy.capsules import Entry
from flashrt.policy.driving import Batches, Perform, driven
from flashrt.policy.journal import Journal
from flashrt.policy.saving import Saver, Spot
from flashrt.policy.session_report import reported
from flashrt.policy.sessions import Session
from flashrt.policy.spacing import Kind
from flashrt.policy.steps import Reset, Step, StepResult
from flashrt.policy.turn import Ended, Steps, Told, TurnEvent
from flashrt.policy.turn_ends import TurnEnd, marked, stands_at
from flashrt.policy.turn_loop import TurnLoop

CARRIED_OUT = Ending(FinishReason.STOP, sampled_tokens=0, kept_tokens=0)
Forked = Generator[Step, StepResult, tuple[Session, ...]]


@attrs.frozen(eq=False)
class SessionWork:
    """One call, and the namespace whose sessions it may see (G10)."""

    namespace: str
    call: AnySessionCall


class SessionCalls:
    """Carries out session calls between the turns of one turn loop. Engine thread only."""

    def __init__(self, turns: TurnLoop) -> None:
        self._turns = turns
        self._policy = turns.policy
        self._events: list[TurnEvent] = []
        self._saver = Saver(turns.policy.store, turns.cut_rule, self._events)

    def run(self, work: SessionWork, perform: Perform) -> Batches:
        """Drive one call to its end; after each step, the events it caused."""
        return driven(self.steps(work), self._events, perform)

    def steps(self, work: SessionWork) -> Steps:
        """The steps of one call. Causes exactly one `Ended` event unless it is closed early.

        It is carried out whole: who leaves meanwhile does not stop it half way.
        """
        try:
            if self._policy.expire():
                self._turns.invalidate()
            answer = yield from self._carried_out(work.namespace, work.call)
            self._events += [Told(answer), Ended(LifeEvent.FINISH, ending=CARRIED_OUT)]
        except Refused as refusal:
            self._events.append(Ended(LifeEvent.FINISH, error=refusal))
        except Exception as error:
            self._turns.invalidate()
            failure = EngineFailed(f"{type(error).__name__}: {error}")
            failure.__cause__ = error
            self._events.append(Ended(LifeEvent.FAIL, error=failure))

    # -- inside ----------------------------------------

    def _carried_out(
        self, namespace: str, call: AnySessionCall
    ) -> Generator[Step, StepResult, SessionAnswer]:
        match call:
            case CreateSession():
                return self._told((yield from self._created(namespace, call)))
            case ListSessions():
                return self._listed(namespace, call)
            case ShowSession(session=name):
                return self._told(self._known(namespace, name))
            case DeleteSession(session=name):
                return (yield from self._deleted(self._known(namespace, name)))
            case ForkSession():
                parent = self._known(namespace, call.session)
                end = marked(parent.ends, call.mark, parent.name)
                children = yield from self._forked(parent, end, call.count)
                return SessionPage(tuple(self._told(child) for child in children))
            case UndoSession():
                session = self._known(namespace, call.session)
                yield from self._undone(session, marked(session.ends, call.mark, session.name))
                return self._told(session)

    def _told(self, session: Session) -> SessionReport:
        return reported(self._policy, session)

    def _known(self, namespace: str, name: str, param: str = "session_id") -> Session:
        """Raises NotFound that names `param`, also for what is another namespace's."""
        session = self._policy.sessions.named(namespace, name)
        if session is None:
            raise NotFound(
                f'There is no session "{name[:60]}" here: it was never created, it was deleted, or '
                "it made room for others (--max-active-sessions, --session-idle-ttl-s).",
                param=param,
            )
        return session

    def _listed(self, namespace: str, call: ListSessions) -> SessionPage:
        found = list(self._policy.sessions.newest(namespace))
        if call.after is not None:
            found = found[found.index(self._known(namespace, call.after, "after")) + 1 :]
        shown = found[: call.limit]
        reports = tuple(reported(self._policy, session, whole=False) for session in shown)
        return SessionPage(reports, has_more=len(found) > len(shown))

    # -- create and fork -------------------------------------------------------------------------

    def _created(self, namespace: str, call: CreateSession) -> Generator[Step, StepResult, Session]:
        if call.session is not None:
            parent = self._known(namespace, call.session, "from_session")
            end = marked(parent.ends, call.mark, parent.name)
            (child,) = yield from self._forked(parent, end, 1)
            return child
        entry = None
        if call.capsule is not None:
            entry = self._policy.store.get(call.capsule)
            if entry is None or entry.namespace != namespace:
                raise NotFound(
                    f'No saved state "{call.capsule[:60]}" is held here; GET /v1/sessions/{{id}} '
                    "names those of a session.",
                    param="from_capsule",
                )
        session = self._policy.sessions.open(namespace)
        if entry is not None:
            self._stand_at(session, entry)
            self._policy.store.use(entry)
        self._policy.sessions.weigh(session)
        return session

    def _stand_at(self, session: Session, entry: Entry) -> None:
        """The session begins where a saved state stands, behind the turns that led to it."""
        ids = Journal.of(entry.capsule.tokens, entry.position, entry.lineage)
        made = self._policy.sessions.named(session.namespace, entry.session)
        if made is not None and made.shared(ids.packed) >= entry.position:
            session.inherit(made, stands_at(made.ends, entry.position))
        if session.end.length == entry.position:
            return
        turn = entry.turn - (entry.kind is not Kind.COMMITTED)
        start, pending = session.end.length, next(iter(ids.pending), None)
        session.ends.append(
            TurnEnd(entry.position, pending, turn, start, messages=None, answered=False)
        )
        session.journal, session.turn, session.last_turn = ids, turn, start

    def _forked(self, parent: Session, end: TurnEnd, count: int) -> Forked:
        """New sessions at one boundary of `parent`, whose state is kept for them."""
        sessions = self._policy.sessions
        if count >= sessions.sessions_max:
            raise Conflict(
                f"{count} sessions and the one that they are forked from are more than the "
                f"{sessions.sessions_max} that this server keeps (--max-active-sessions).",
                param="n",
            )
        sessions.use(parent)
        yield from self._keep(parent, end)
        children = tuple(sessions.open(parent.namespace) for _ in range(count))
        for child in children:
            child.inherit(parent, end)
            sessions.weigh(child)
        return children

    def _keep(self, session: Session, end: TurnEnd) -> Steps:
        """Have the state of a boundary saved, if it is held or live."""
        hot = self._policy.hot
        if hot is not None and hot.session is session and hot.journal.processed == end.length:
            spot = Spot(session, hot.journal, Kind.COMMITTED, end.length)
            yield from self._saver.save(spot)
            return
        packed = session.journal.packed
        entry = self._policy.store.has(session.namespace, packed, end.length)
        if entry is not None:
            self._policy.store.use(entry)

    # -- undo ------------------------------------------------------------------------------------

    def _undone(self, session: Session, end: TurnEnd) -> Steps:
        """Stand at `end` again. The tail is not parked, and what is saved of it goes first."""
        policy = self._policy
        session.rewind(end)
        policy.sessions.use(session)
        policy.sessions.weigh(session)
        policy.cut_off(session, session.journal.packed[: end.length * ID_BYTES])
        hot = policy.hot
        if hot is None or hot.session is not session or hot.journal.processed == end.length:
            return
        entry = policy.store.has(session.namespace, session.journal.packed, end.length)
        self._turns.invalidate()
        if entry is None:
            return
        journal = yield from self._turns.restored(entry, tuple(session.journal.ids))
        if journal is not None:
            policy.store.use(entry)
            policy.on_commit(session, journal, lookahead=len(journal.pending))

    # -- delete ----------------------------------------------------------------------------------

    def _deleted(self, session: Session) -> Generator[Step, StepResult, SessionDeleted]:
        """Forget all that was kept for it alone: saved states, replay, and the live state."""
        policy = self._policy
        policy.sessions.forget(session)
        gone, kept = policy.let_go(session)
        living = list(policy.sessions.newest(session.namespace))
        for place in session.places:
            if not any(place in other.places for other in living):
                policy.memory.forget(place)
        if policy.hot is not None and policy.hot.session is session:
            self._turns.invalidate()
            yield Reset()
        return SessionDeleted(session.name, gone, kept)
