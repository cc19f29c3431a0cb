"""The automatic prefix policy: what the engine thread asks before each request."""

from collections.abc import Sequence
from itertools import islice

import attrs

from flashrt.chat.prompt import Prompt
from flashrt.chat.visible import Visible
from flashrt.engine.protocol import ID_BYTES
from flashrt.policy.capsules import CapsuleStore, Entry
from flashrt.policy.costs import CostModel
from flashrt.policy.journal import Journal
from flashrt.policy.miss import later_keys, what_broke
from flashrt.policy.prefix import Action, PrefixPlan, choose_action
from flashrt.policy.replay import Replayed, ReplayMemory
from flashrt.policy.sessions import Session, SessionRegistry
from flashrt.policy.spacing import Kind
from flashrt.policy.tiers import Tier
from flashrt.policy.turn_ends import stands_at

SAME_TALK_MAX = 8
"""Sessions that are looked at to find out what a broken prefix used to be."""


@attrs.frozen(eq=False)
class Hot:
    """The live state, while it may be attached to: whose it is, and what it stands for."""

    session: Session
    journal: Journal


@attrs.frozen
class Relation:
    """How a prompt stands to the known conversation that its client names, else to the one with
    which it shares most. `same`: it shares more with it than an opening.
    """

    session: Session | None = None
    same: bool = False
    leaves: bool = False
    in_last_turn: bool = False
    named: bool = False


class AutoPrefixPolicy:
    """Knows the hot journal, the sessions and the capsules; decides by full token lists alone."""

    def __init__(
        self,
        *,
        max_seq: int,
        capsule_budget_bytes: int = 0,
        sessions: SessionRegistry | None = None,
        store: CapsuleStore | None = None,
    ) -> None:
        """`max_seq`: a replay that leaves no room in this window for an answer is not used.

        `store`: one with more than one tier; without it there is one of `capsule_budget_bytes`.
        """
        self.store = CapsuleStore(capsule_budget_bytes) if store is None else store
        self.sessions = SessionRegistry() if sessions is None else sessions
        self.memory = ReplayMemory()
        self.costs = CostModel()
        self._max_seq = max_seq
        self._hot: Hot | None = None

    @property
    def hot(self) -> Hot | None:
        """The live state, if it may be attached to."""
        return self._hot

    # -- before a turn -----------------------------------------------------------------------------

    def expire(self) -> bool:
        """Let go what idle sessions have left; whether the live state belonged to one of them.

        What is pinned stays: it was kept for others. So does what a living session begins with.
        """
        idle = self.sessions.expire()
        for session in idle:
            for entry in self.store.of_session(session.name):
                heir = self._heir(entry, session)
                if heir is not None:
                    entry.session = heir.name
                elif not entry.pinned:
                    self.store.drop(entry)
        return self._hot is not None and self._hot.session in idle

    def plan(
        self, incoming_tokens: Prompt, *, session_hint: str | None = None, salt: str = ""
    ) -> PrefixPlan:
        """The soonest honest way to the first token behind a prompt in the namespace `salt`.

        Making a plan changes nothing. The tools are in the prompt, whose outline compares them.
        """
        used = self._used(incoming_tokens, salt)
        hot = self._hot_heading(used, salt)
        entry = self._sooner_entry(used, salt, hot)
        hot = None if entry is not None else hot
        named = self.sessions.named(salt, session_hint)
        if named is not None:
            relation = _relation_to(named, used)
        else:
            relation = self._relation(used, session_hint, salt, entry, hot)
        cached = entry.capsule.position if entry else hot.journal.processed if hot else 0
        action = choose_action(
            from_hot=hot is not None,
            from_capsule=entry is not None,
            nothing_new=hot is not None and _nothing_new(hot.journal, used),
            as_rendered=_same_start(used, incoming_tokens, cached),
            same_conversation=relation.same,
            leaves=relation.leaves,
            in_last_turn=relation.in_last_turn,
        )
        goes_on = relation.named or not relation.leaves or action is Action.TRUNCATE
        session = relation.session if goes_on else None
        is_its_own = hot is not None and hot.session is session
        miss = None
        if hot is None:
            broken = relation.session or self._same_talk(incoming_tokens, session_hint, salt)
            miss = what_broke(broken, incoming_tokens, cached)
        return PrefixPlan(
            action,
            salt,
            used,
            cached,
            entry,
            session,
            parks=not is_its_own and not self._is_cut_tail(action, session),
            miss=miss,
            parent=None if goes_on else relation.session,
        )

    def begin(self, plan: PrefixPlan, prompt: Prompt, boundary: int, hint: str | None) -> Session:
        """A turn along `plan` begins, of the session that this returns.

        `boundary`: where the generation prompt begins.
        """
        session = plan.session or self._opened(plan)
        if plan.action is Action.TRUNCATE:
            self.cut_off(session, plan.used.packed)
        elif plan.session is not None:
            session.last_turn = session.stands(plan.used.packed)
        else:
            session.last_turn = session.end.length or plan.cached_tokens
        if plan.entry is not None:
            self.store.use(plan.entry)
            session.turn = plan.entry.turn - (plan.entry.kind is not Kind.COMMITTED)
        session.turn += 1
        session.first_prompt = session.first_prompt or boundary
        session.wording, session.answer = prompt.wording, None
        if hint != session.name:
            session.hint = hint or session.hint
        self.sessions.use(session)
        return session

    # -- of whom a saved state is ------------------------------------------------------------------

    def cut_off(self, session: Session, packed: bytes) -> None:
        """What is saved of a session beside the ids `packed` goes first, or is another's now."""
        for entry in self.store.of_session(session.name):
            if not entry.capsule.heads(packed):
                heir = self._heir(entry, session)
                entry.first_to_go = heir is None
                entry.session = session.name if heir is None else heir.name

    def let_go(self, session: Session) -> tuple[int, int]:
        """Of a session that is forgotten: how many saved states go, and how many are another's.

        Pins go too: who deletes a session lets go of what was pinned for it.
        """
        packed = session.journal.packed[: session.journal.processed * ID_BYTES]
        own = [*self.store.of_session(session.name), *self.store.path(session.namespace, packed)]
        gone = kept = 0
        for entry in dict.fromkeys(own):
            heir = self._heir(entry, session)
            if heir is None:
                if entry.pinned:
                    self.store.unpin(entry.key)
                self.store.drop(entry)
                gone += 1
            else:
                entry.session = heir.name
                kept += 1
        return gone, kept

    def _heir(self, entry: Entry, session: Session) -> Session | None:
        """The session that a saved state of `session` is of use to as well, the newest first."""
        made = self.sessions.get(entry.session)
        if made is not None and made is not session:
            return made
        for other in self.sessions.newest(entry.namespace):
            reaches = other is not session and other.journal.processed >= entry.position
            if reaches and entry.capsule.heads(other.journal.packed):
                return other
        return None

    # -- while a turn runs -------------------------------------------------------------------------

    def on_commit(self, session: Session, tokens: Journal, *, lookahead: int) -> None:
        """The live state of `session` stands for `tokens`.

        `lookahead` counts the newest tokens that the state has not processed: 0 or 1. Anything else
        would mean that KV leads or trails the transcript, and raises.
        """
        if lookahead not in (0, 1) or lookahead != len(tokens.ids) - tokens.processed:
            raise AssertionError(
                f"the state has processed {tokens.processed} ids, its journal has "
                f"{len(tokens.ids)}, and {lookahead} should be pending: KV would lead or trail "
                "the transcript"
            )
        self._hot = Hot(session, tokens)

    def forget(self) -> None:
        """There is no live state to attach to any more."""
        self._hot = None

    def finish(
        self, session: Session, plan: PrefixPlan, visible: Visible, ids: Sequence[int]
    ) -> None:
        """An answer has ended well; `ids`, from 0 on, read as what the client saw of it."""
        session.answer = visible
        place = self.memory.note_answer(plan.used, visible, ids)
        if place is not None:
            session.places[place] = len(ids)

    def note_system(self, session: Session, prompt: Prompt) -> None:
        """The prompt's system turn is processed: it may be used again as it was rendered."""
        place = self.memory.note_system(session.namespace, prompt)
        if place is not None:
            session.places[place] = 0

    # -- inside ------------------------------------------------------------------------------------

    def _opened(self, plan: PrefixPlan) -> Session:
        """A new session; where it leaves another one, with the turns that they have in common."""
        session = self.sessions.open(plan.namespace)
        if plan.parent is not None:
            shared = plan.parent.shared(plan.used.packed)
            session.inherit(plan.parent, stands_at(plan.parent.ends, shared))
            session.first_prompt = 0
        return session

    def _used(self, prompt: Prompt, salt: str) -> Replayed:
        used = self.memory.replay(salt, prompt)
        if len(used) >= self._max_seq > len(prompt):
            return Replayed.canonical(prompt, used.digest)
        return used

    def _hot_heading(self, used: Replayed, salt: str) -> Hot | None:
        """The live state, if all that it has processed is the prompt's, in its namespace."""
        hot = self._hot
        if hot is None or hot.session.namespace != salt or not hot.journal.processed:
            return None
        return hot if hot.journal.heads(used.packed) else None

    def _sooner_entry(self, used: Replayed, salt: str, hot: Hot | None) -> Entry | None:
        """The capsule from which the first token comes soonest, if that is sooner than from what
        is hot: of each tier the deepest."""
        total, reached = len(used), hot.journal.processed if hot else 0
        deepest: dict[Tier | None, Entry] = {}
        for entry in self.store.reaching(salt, used.packed, reached):
            deepest.setdefault(entry.tier, entry)
        sooner = min(deepest.values(), key=lambda e: self._from_entry_ms(e, total), default=None)
        if sooner is None:
            return None
        from_capsule = self._from_entry_ms(sooner, total)
        return sooner if from_capsule <= self.costs.prefill_ms(total - reached) else None

    def _from_entry_ms(self, entry: Entry, total: int) -> float:
        """To the first token behind `total` ids, from a capsule."""
        size, tier = entry.capsule.capsule_bytes, entry.tier or Tier.DEVICE
        restore_ms = self.costs.restore_ms(size, tier)
        return restore_ms + self.costs.prefill_ms(total - entry.position)

    def _relation(
        self, used: Replayed, hint: str | None, salt: str, entry: Entry | None, hot: Hot | None
    ) -> Relation:
        """To the session that shares most, if that is more than an opening."""
        if hot is not None:
            return Relation(hot.session, same=True)
        made = self.sessions.get(entry.session) if entry is not None else None
        live = self._hot.session if self._hot is not None else None
        known = [self.sessions.hinted(salt, hint), live, made]
        sharing = [(s.shared(used.packed), s) for s in known if s and s.namespace == salt]
        shared, session = max(sharing, key=lambda pair: pair[0], default=(0, None))
        if session is None or not 0 < session.first_prompt <= shared:
            return Relation()
        own = hint is None or session.hint is None or hint == session.hint
        return Relation(
            session,
            same=True,
            leaves=shared < session.journal.processed,
            in_last_turn=own and shared >= session.last_turn,
        )

    def _same_talk(self, prompt: Prompt, hint: str | None, salt: str) -> Session | None:
        """The session that the client means, or the newest that has a part with this in common."""
        hinted = self.sessions.hinted(salt, hint)
        if hinted is not None:
            return hinted
        keys = later_keys(prompt)
        newest = islice(self.sessions.newest(salt), SAME_TALK_MAX)
        return next((s for s in newest if s.wording and keys & later_keys(s.wording)), None)

    def _is_cut_tail(self, action: Action, session: Session | None) -> bool:
        """Whether the live state is just the tail that a truncation drops."""
        hot = self._hot
        return action is Action.TRUNCATE and hot is not None and hot.session is session


def _relation_to(session: Session, used: Replayed) -> Relation:
    """To the session that the client names: the turn is that one's, whatever it has in common."""
    shared = session.shared(used.packed)
    return Relation(
        session,
        same=0 < session.first_prompt <= shared,
        leaves=shared < session.journal.processed,
        in_last_turn=shared >= session.last_turn,
        named=True,
    )


def _nothing_new(journal: Journal, used: Replayed) -> bool:
    """Whether the state has processed all ids, or all but its pending one."""
    left = used[journal.processed :]
    return left in ((), journal.pending)


def _same_start(used: Replayed, prompt: Prompt, length: int) -> bool:
    size = length * ID_BYTES
    return used.packed[:size] == prompt.packed[:size]
