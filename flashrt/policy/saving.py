"""Automatic capsules: at which boundaries a state is kept, and the steps that keep it.

No capsule adds a cut, and none may fail a request: what goes wrong here costs time later (G8).
"""

from collections.abc import Collection, Generator, Mapping, Sequence
from typing import Any

import attrs

from flashrt.engine.protocol import ID_BYTES, Capsule, RowBlock
from flashrt.policy.capsules import CapsuleStore, Entry
from flashrt.policy.cuts import CutRule
from flashrt.policy.journal import Journal
from flashrt.policy.sessions import Session
from flashrt.policy.spacing import Kind, saves_cut, thin
from flashrt.policy.steps import Refill, Save, Step, StepResult, Weigh
from flashrt.policy.turn import Saved, Steps, TurnEvent


@attrs.frozen(eq=False)
class Spot:
    """A boundary that the engine stands at or can reach: `length` processed ids of a journal."""

    session: Session
    journal: Journal
    kind: Kind
    length: int

    @property
    def packed(self) -> bytes:
        """The processed ids."""
        return self.journal.packed[: self.length * ID_BYTES]


@attrs.define(eq=False)
class Saver:
    """Keeps states in the store; `events` tells what was done."""

    store: CapsuleStore
    cut_rule: CutRule
    events: list[TurnEvent]

    def save(self, spot: Spot, keep: Collection[Entry] = ()) -> Steps:
        """Keep the state at `spot`, unless it is kept already or the budget has no room for it."""
        try:
            known = self.store.has(spot.session.namespace, spot.packed, spot.length)
            if known is not None:
                self.store.use(known)
            elif self.store.budget_bytes:
                yield from self._take(spot, keep)
        except Exception as error:
            self.events.append(Saved(error=f"{type(error).__name__}: {error}"))

    def kind_of_cut(self, ids: Sequence[int], cut: int, asked: int) -> Kind | None:
        """What the state at a cut of a prefill is kept as; None: it is not kept.

        `asked`: where the user's newest message ends; some templates show what comes behind it in
        another way as soon as there is a newer one.
        """
        cuts = self.cut_rule.cuts(ids)
        if cut == self.cut_rule.system_end(ids):
            return Kind.SYSTEM
        last = max((c for c in cuts if c <= asked), default=None)
        return Kind.CUT if cut == last or saves_cut(cuts.index(cut)) else None

    def _take(self, spot: Spot, keep: Collection[Entry]) -> Steps:
        length = None if spot.length == spot.journal.processed else spot.length
        if not (yield from self._room(length, keep)):
            return
        capsule = yield Save(length)
        assert isinstance(capsule, Capsule), f"saving gave {capsule!r}"
        session = spot.session
        with self.store.guarding(capsule):
            filled = yield from self._refilled(capsule, keep)
            entry = self.store.put(
                capsule,
                namespace=session.namespace,
                session=session.name,
                kind=spot.kind,
                turn=session.turn,
                lineage=spot.journal.lineage_at(spot.length),
                filled=filled,
            )
        if entry is not None:
            self.events.append(Saved())
        for old in thin(self.store.of_session(session.name), session.turn):
            self.store.drop(old)

    def _room(
        self, length: int | None, keep: Collection[Entry]
    ) -> Generator[Step, StepResult, bool]:
        """Evict until the newcomer fits. Evicting may free rows that it would have shared, so it is
        weighed again until nothing more had to go."""
        while True:
            need = yield Weigh(length)
            assert isinstance(need, int)
            moves = self.store.moves
            if not self.store.make_room(need, keep):
                return self.store.host_takes(need)
            if self.store.moves == moves:
                return True

    def _refilled(
        self, capsule: Capsule, keep: Collection[Entry]
    ) -> Generator[Step, StepResult, Mapping[RowBlock, Mapping[str, Any]]]:
        """Rows that the capsule shares with others which have left the engine's memory, copied
        from the live state. Where it does not fit there, those that lie in files only."""
        away = self.store.away(capsule)
        moves = self.store.moves
        if away and not self.store.make_room(self.store.added_bytes(capsule), keep):
            away = self.store.away(capsule, from_memory=True)
        elif self.store.moves != moves:
            return (yield from self._refilled(capsule, keep))
        filled = {}
        for block in away:
            buffers = yield Refill(block)
            assert isinstance(buffers, Mapping), f"refilling gave {buffers!r}"
            filled[block] = buffers
        return filled
