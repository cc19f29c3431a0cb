"""What a client is told about one of its sessions."""

from flashrt.chat.session_call import HeldState, NextTurn, ReachableEnd, SessionReport
from flashrt.engine.protocol import ID_BYTES
from flashrt.policy.auto_prefix import AutoPrefixPolicy
from flashrt.policy.capsules import Entry
from flashrt.policy.sessions import Session
from flashrt.policy.tiers import TIER_OF
from flashrt.policy.turn_ends import NOTHING


def reported(policy: AutoPrefixPolicy, session: Session, *, whole: bool = True) -> SessionReport:
    """The session as it stands; `whole`: with its saved states and its boundaries."""
    length = session.journal.processed
    packed = session.journal.packed[: length * ID_BYTES]
    held = policy.store.path(session.namespace, packed)
    saved = held[0].position if held else 0
    live = _live_tokens(policy, session, packed)
    next_turn: NextTurn = "rebuild"
    if live or saved:
        next_turn = "append" if live >= saved else "restore"
    return SessionReport(
        name=session.name,
        created_at=session.created_at,
        used_at=session.used_at,
        turns=sum(end.answered for end in session.ends),
        tokens=length,
        messages=session.end.messages,
        hot=policy.hot is not None and policy.hot.session is session,
        next_turn=next_turn,
        reusable_tokens=max(live, saved),
        parent=session.parent,
        states=tuple(_shown(entry) for entry in held) if whole else None,
        boundaries=_boundaries(session, held) if whole else None,
    )


def _live_tokens(policy: AutoPrefixPolicy, session: Session, packed: bytes) -> int:
    """How much of the session the live state stands for; 0: it is no beginning of it."""
    hot = policy.hot
    if hot is None or hot.session.namespace != session.namespace or not hot.journal.heads(packed):
        return 0
    return hot.journal.processed


def _shown(entry: Entry) -> HeldState:
    tier = TIER_OF[entry.machine.state].value
    return HeldState(entry.key, entry.position, entry.kind.value, tier, entry.pinned)


def _boundaries(session: Session, held: list[Entry]) -> tuple[ReachableEnd, ...]:
    """Oldest first, from before the first turn to where the session stands."""
    lengths = {0, *(entry.position for entry in held)}
    known = [NOTHING, *session.ends]
    return tuple(
        ReachableEnd(len(known) - 1 - i, end.length, end.messages, end.length in lengths)
        for i, end in enumerate(known)
    )
