"""Session calls on the fake engine, as the engine thread carries them out between two turns."""

from typing import Any

from flashrt.chat.request import CacheHints
from flashrt.chat.session_call import (
    AnySessionCall,
    CreateSession,
    DeleteSession,
    ForkSession,
    ListSessions,
    Mark,
    SessionDeleted,
    SessionPage,
    SessionReport,
    ShowSession,
    UndoSession,
)
from flashrt.policy.driving import Perform
from flashrt.policy.session_calls import SessionCalls, SessionWork
from flashrt.policy.turn import Ended, Prefilled, Told
from tests.policy.turns import Server, opening

NOBODY = CacheHints()
SYSTEM = opening(1, 2)


class Agent:
    """Who calls; `namespace`: whose sessions it sees."""

    def __init__(self, server: Server, namespace: str = "a") -> None:
        self._server = server
        self._calls = SessionCalls(server.loop)
        self._namespace = namespace

    def carried_out(self, call: AnySessionCall, perform: Perform | None = None) -> Any:
        """The answer; raises what the call was refused with, or has failed with."""
        work = SessionWork(self._namespace, call)
        batches = self._calls.run(work, perform or self._server.performer.perform)
        events = [event for batch in batches for event in batch]
        (ended,) = (event for event in events if isinstance(event, Ended))
        if ended.error is not None:
            raise ended.error
        (told,) = (event for event in events if isinstance(event, Told))
        return told.answer

    def create(self, **wish: Any) -> SessionReport:
        report: SessionReport = self.carried_out(CreateSession(NOBODY, **wish))
        return report

    def show(self, name: str) -> SessionReport:
        report: SessionReport = self.carried_out(ShowSession(NOBODY, name))
        return report

    def listed(self, limit: int = 100, after: str | None = None) -> SessionPage:
        page: SessionPage = self.carried_out(ListSessions(NOBODY, limit, after))
        return page

    def fork(
        self, name: str, count: int = 1, perform: Perform | None = None, **mark: int
    ) -> tuple[SessionReport, ...]:
        call = ForkSession(NOBODY, name, count, Mark(**mark or {"turns": 0}))
        page: SessionPage = self.carried_out(call, perform)
        return page.sessions

    def undo(self, name: str, perform: Perform | None = None, **mark: int) -> SessionReport:
        call = UndoSession(NOBODY, name, Mark(**mark or {"turns": 1}))
        report: SessionReport = self.carried_out(call, perform)
        return report

    def delete(self, name: str, perform: Perform | None = None) -> SessionDeleted:
        deleted: SessionDeleted = self.carried_out(DeleteSession(NOBODY, name), perform)
        return deleted


class Chat:
    """A conversation of one session on a server of its own."""

    def __init__(self, budget=10**9, server=None, name=None):
        self.server = server or Server(budget)
        self.agent = Agent(self.server)
        self.name = name or self.agent.create().name
        self.transcript = SYSTEM
        self.transcripts = [SYSTEM]

    def say(self, text, **wish):
        prompt = (*self.transcript, *text)
        served = self.server.serve(prompt, hint=self.name, **wish)
        self.transcript = (*prompt, *served.ids)
        self.transcripts.append(self.transcript)
        return served

    def undo(self, turns=1, **wish):
        report = self.agent.undo(self.name, turns=turns, **wish)
        del self.transcripts[len(self.transcripts) - turns :]
        self.transcript = self.transcripts[-1]
        return report

    def child(self, name):
        chat = Chat(server=self.server, name=name)
        chat.transcript, chat.transcripts = self.transcript, list(self.transcripts)
        return chat

    @property
    def session(self):
        return self.server.policy.sessions.get(self.name)


def lineage_of(served):
    """How the state of the prompt was built."""
    (prefilled,) = served.of(Prefilled)
    return prefilled.lineage


def standing(session):
    """All that decides what the next turn does."""
    return (
        tuple(session.journal.ids),
        session.journal.processed,
        session.journal.lineage,
        session.ends,
        session.turn,
        session.last_turn,
        session.first_prompt,
    )
