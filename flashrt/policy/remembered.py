"""What outlives the process beside capsules: exact replay's memory, and sessions, as bytes.

Without them a turn behind a start still finds its capsule where the template writes the history as
it was sampled; with them it is read as it was, and goes on with its session.
"""

from array import array

import msgspec

from flashrt.engine.protocol import ID_TYPE
from flashrt.policy.journal import Journal
from flashrt.policy.lineage import Span
from flashrt.policy.replay import Place, ReplayMemory
from flashrt.policy.sessions import Session, SessionRegistry
from flashrt.policy.turn_ends import TurnEnd

FORMAT = 1

SESSIONS_BYTES_MAX = 48 << 20
"""Of the sessions' ids; the newest are kept."""


class PlaceNote(msgspec.Struct, array_like=True, frozen=True, forbid_unknown_fields=True):
    """A place of exact replay; `before` counts in the list of all. `named`: it is found by it."""

    digest: str
    spot: str
    before: int
    packed: bytes
    named: bool


class SessionNote(msgspec.Struct, array_like=True, frozen=True, forbid_unknown_fields=True):
    """A session without its words. `idle_s`: nobody had used it for so long."""

    name: str
    namespace: str
    hint: str | None
    packed: bytes
    processed: int
    lineage: tuple[tuple[int, bool, tuple[int, ...]], ...]
    turn: int
    first_prompt: int
    last_turn: int
    parent: str | None
    ends: tuple[tuple[int, int | None, int, int, int | None, bool], ...]
    places: dict[str, int]
    age_s: float
    idle_s: float


class Note(msgspec.Struct, array_like=True, frozen=True, forbid_unknown_fields=True):
    """All of it. `at`: seconds since the epoch. Sessions: oldest first."""

    format: int
    at: float
    places: tuple[PlaceNote, ...]
    sessions: tuple[SessionNote, ...]


def noted(memory: ReplayMemory, sessions: SessionRegistry, at: float) -> bytes:
    """As bytes; `at`: seconds since the epoch."""
    return msgspec.msgpack.encode(Note(FORMAT, at, _places(memory), _sessions(sessions)))


def recall(data: bytes, memory: ReplayMemory, sessions: SessionRegistry, at: float) -> None:
    """Know again what was noted, as older than all that is known already.

    Raises ValueError for what is no note of this format; then nothing has changed.
    """
    note = msgspec.msgpack.decode(data, type=Note)
    if note.format != FORMAT:
        raise ValueError(f"a note of format {note.format}; this server reads {FORMAT}")
    places = _recalled(note.places)
    known = [_session(told, sessions.now, max(0.0, at - note.at)) for told in note.sessions]
    for place, told in zip(places, note.places, strict=True):
        if told.named:
            memory.keep(place)
    for session in known:
        sessions.adopt(session)


def _places(memory: ReplayMemory) -> tuple[PlaceNote, ...]:
    """Each behind the one that it begins with."""
    numbers: dict[Place, int] = {}
    notes: list[PlaceNote] = []
    named = list(memory.places())
    for place in named:
        for one in place.line:
            if one not in numbers:
                numbers[one] = len(notes)
                before = -1 if one.before is None else numbers[one.before]
                notes.append(PlaceNote(one.digest, one.spot, before, one.packed, False))
    for place in named:
        at = numbers[place]
        notes[at] = msgspec.structs.replace(notes[at], named=True)
    return tuple(notes)


def _recalled(notes: tuple[PlaceNote, ...]) -> list[Place]:
    places: list[Place] = []
    for note in notes:
        if not -1 <= note.before < len(places):
            raise ValueError(f"a place behind one that is not there: {note.before}")
        before = None if note.before < 0 else places[note.before]
        places.append(Place(note.digest, note.spot, before, note.packed))
    return places


def _sessions(sessions: SessionRegistry) -> tuple[SessionNote, ...]:
    notes: list[SessionNote] = []
    size, now = 0, sessions.now
    for session in sessions.all_newest():
        packed = session.journal.packed
        size += len(packed)
        if size > SESSIONS_BYTES_MAX:
            break
        notes.append(_session_note(session, packed, now))
    return tuple(reversed(notes))


def _session_note(session: Session, packed: bytes, now: float) -> SessionNote:
    return SessionNote(
        session.name,
        session.namespace,
        session.hint,
        packed,
        session.journal.processed,
        tuple((span.stop, span.decoded, span.beyond) for span in session.journal.lineage),
        session.turn,
        session.first_prompt,
        session.last_turn,
        session.parent,
        tuple((e.length, e.pending, e.turn, e.start, e.messages, e.answered) for e in session.ends),
        dict(session.places),
        now - session.created_at,
        now - session.used_at,
    )


def _session(note: SessionNote, now: float, down_s: float) -> Session:
    ids = array(ID_TYPE)
    ids.frombytes(note.packed)
    if not 0 <= note.processed <= len(ids) <= note.processed + 1:
        raise ValueError(f"{note.processed} of {len(ids)} ids are processed in {note.name}")
    lineage = tuple(Span(stop, decoded, beyond) for stop, decoded, beyond in note.lineage)
    return Session(
        note.name,
        note.namespace,
        note.hint,
        Journal.of(ids, note.processed, lineage),
        note.turn,
        note.first_prompt,
        note.last_turn,
        created_at=now - note.age_s - down_s,
        used_at=now - note.idle_s - down_s,
        parent=note.parent,
        ends=[TurnEnd(*end) for end in note.ends],
        places=dict(note.places),
    )
