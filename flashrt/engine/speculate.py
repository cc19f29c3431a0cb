"""Draft, verify, accept: which ids a step tries, and which of them stay.

A drafted id stays where it equals the id that its row chooses anyway, so no text depends on drafts:
what a drafter is good at is speed alone.
"""

from collections.abc import Callable, Sequence
from typing import Protocol

import attrs
from torch import Tensor

from flashrt.engine.drafting.depth import LOOKUP, MTP, Choice, Costs, DraftDepth
from flashrt.engine.drafting.lookup import PromptLookup
from flashrt.engine.live import LiveState
from flashrt.engine.mtp import likeliest
from flashrt.engine.protocol import Constraint, EngineMisuse, RowConstraint, SamplingParams
from flashrt.engine.sampler import NoFiniteLogits, Sampler, takes_likeliest

COSTS = {
    "cpu": Costs(row=0.1, group=0.5, mtp=0.3),
    "cuda": Costs(row=0.01, group=0.2, mtp=0.07),
}
"""By kind of device; the CPU's as `flashrt.bench.drafts` measures them on the demo checkpoint."""


@attrs.frozen
class Draft:
    """Ids that may follow the pending one, and who says so."""

    ids: tuple[int, ...] = ()
    drafter: str = ""


class Drafting(Protocol):
    """The drafts of one call of decode."""

    def propose(self, journal: list[int], room: int) -> Draft:
        """At most `room` ids behind the journal, whose newest id is pending."""
        ...

    def observe(self, draft: Draft, tokens: Sequence[int]) -> None:
        """The step of this draft has added `tokens`: the draft's ids that stayed, and one more."""
        ...


class NoDrafts:
    """Decodes one id a step."""

    def propose(self, journal: list[int], room: int) -> Draft:
        """Nothing."""
        return Draft()

    def observe(self, draft: Draft, tokens: Sequence[int]) -> None:
        """Nothing to learn."""


@attrs.define(eq=False)
class AdaptiveDrafts:
    """Drafts by the MTP layer and by lookup in the journal, as deep as acceptance tells."""

    live: LiveState
    sampler: Sampler
    lookup: PromptLookup
    depth: DraftDepth
    params: SamplingParams
    quoted: tuple[int, ...] = ()
    """What lookup proposed for the step under way, drafted or not."""

    def propose(self, journal: list[int], room: int) -> Draft:
        """From whichever drafter is expected to get further. An id that would stop is left out:
        its row chooses it without help."""
        stop_ids, sampleable = self.params.stop_ids, self.sampler.sampleable
        self.quoted = _until_stop(self.lookup.propose(journal, room), stop_ids, sampleable)
        choice = self.depth.next(len(self.quoted))
        if choice.drafter == LOOKUP:
            return Draft(self.quoted[: choice.count], LOOKUP)
        if choice.drafter == MTP:
            return Draft(self._by_layer(journal, min(choice.count, room)), MTP)
        return Draft()

    def observe(self, draft: Draft, tokens: Sequence[int]) -> None:
        """Let the next depth follow; also from what lookup would have been worth."""
        self.depth.observe(Choice(draft.drafter, len(draft.ids)), len(tokens) - 1)
        if draft.drafter != LOOKUP:
            self.depth.watch(self.quoted, tokens)
        self.quoted = ()

    def _by_layer(self, journal: list[int], count: int) -> tuple[int, ...]:
        """Chosen as the row itself will choose, with the same limits and noise: so they agree more
        often than the likeliest id would."""
        if takes_likeliest(self.params):
            ids = self.live.draft(journal[-1], count, likeliest)
            return _until_stop(ids, self.params.stop_ids, self.sampler.sampleable)
        known = len(journal)

        def choose(logits: Tensor, drafted: Sequence[int]) -> int:
            journal[known:] = drafted  # no copy: it may be long, and this is done in every step
            try:
                id_ = self.sampler.choose(logits, self.params, journal=journal, allowed=None)
            except (EngineMisuse, NoFiniteLogits) as error:
                raise StopIteration from error
            if id_ in self.params.stop_ids:
                raise StopIteration
            return id_

        try:
            return self.live.draft(journal[-1], count, choose)
        finally:
            del journal[known:]


def drafts_for(
    live: LiveState,
    sampler: Sampler,
    lookup: PromptLookup,
    params: SamplingParams,
    most: int,
    drafters: Sequence[str],
) -> Drafting:
    """The drafts of one call of decode, at most `most` a step by the MTP layer."""
    if not drafters or params.draft_tokens == 0:
        return NoDrafts()
    costs = COSTS[live.model.device.type]
    depth = DraftDepth(most, costs=costs, drafters=drafters, exact=params.draft_tokens)
    return AdaptiveDrafts(live, sampler, lookup, depth, params)


def limits_of(
    constraint: Constraint | None, accepted: Sequence[int], draft: Sequence[int]
) -> Sequence[RowConstraint] | None:
    """What each row of a step may choose, behind the ids `accepted` by the step before; None:
    anything. Raises EngineMisuse where the rows are not those of the draft."""
    if constraint is None:
        return None
    allowed = constraint(accepted, draft)
    if len(allowed) != 1 + len(draft):
        raise EngineMisuse(f"{len(allowed)} limits for {1 + len(draft)} rows")
    return allowed


def accept(
    choose: Callable[[int], int],
    draft: Sequence[int],
    stop_ids: frozenset[int],
    journal: list[int],
) -> None:
    """Extend the journal by what the rows choose, as long as that is what was drafted.

    `choose(r)` is the choice of row r given the journal as it then is; it is asked only where every
    draft before it has stayed. The choice that differs from its draft, or stops, is the last. A row
    that cannot choose ends the burst before it; the next step, where it is the first, will say why.
    """
    start = len(journal)
    for row in range(len(draft) + 1):
        try:
            id_ = choose(row)
        except (EngineMisuse, NoFiniteLogits):
            if len(journal) == start:
                raise
            return
        journal.append(id_)
        if id_ in stop_ids or row == len(draft) or id_ != draft[row]:
            return


def _until_stop(ids: tuple[int, ...], stop_ids: frozenset[int], sampleable: int) -> tuple[int, ...]:
    """The ids before one that stops, or that no row can choose."""
    for i, id_ in enumerate(ids):
        if id_ in stop_ids or id_ >= sampleable:
            return ids[:i]
    return ids
