"""An engine whose drafts are imposed: acceptance is an input of a measurement, not its result.

Random weights say nothing about how often drafts are right. So an oracle that knows the text, from
a run without drafts, says which ids are drafted and how many of them are right; the text stays the
same, since no text depends on drafts.
"""

from collections.abc import Sequence

import attrs

from flashrt.engine.drafting.depth import MTP
from flashrt.engine.hybrid import HybridEngine
from flashrt.engine.protocol import EngineMisuse, SamplingParams
from flashrt.engine.speculate import Draft, Drafting, NoDrafts, drafts_for


@attrs.frozen
class Oracle:
    """Drafts `count` ids a step, the first `right` of them those of `text`, the others not."""

    text: Sequence[int]
    """The journal of a run without drafts, prompt included."""
    count: int
    right: int

    def propose(self, journal: list[int], room: int) -> Draft:
        """Knows where the journal stands by its length."""
        at = len(journal)
        ids = tuple(self.text[at : at + self.count])
        if len(ids) < self.count or room < self.count:
            raise EngineMisuse(f"{self.count} ids cannot be drafted at {at}: the text ends there")
        wrong = tuple(id_ - 1 if id_ else id_ + 1 for id_ in ids[self.right :])
        return Draft((*ids[: self.right], *wrong), "oracle")

    def observe(self, draft: Draft, tokens: Sequence[int]) -> None:
        """Nothing to learn; but what was imposed must have come about. The first step behind a
        prompt drafts nothing."""
        right = min(self.right, len(draft.ids))
        if len(tokens) != right + 1:
            raise EngineMisuse(
                f"{len(tokens) - 1} of {len(draft.ids)} drafted ids were right, not {right}: the "
                "text is not that of the run without drafts"
            )


@attrs.frozen
class Overwritten:
    """Drafts by `drafting`, which does all its work; then `oracle` says which ids they are."""

    drafting: Drafting
    oracle: Oracle

    def propose(self, journal: list[int], room: int) -> Draft:
        """As many as the oracle's."""
        done = self.drafting.propose(journal, room)
        if len(done.ids) != self.oracle.count:
            raise EngineMisuse(f"{len(done.ids)} ids were drafted, not {self.oracle.count}")
        return self.oracle.propose(journal, room)

    def observe(self, draft: Draft, tokens: Sequence[int]) -> None:
        """To the oracle alone: the one that drafted drafts as many every time."""
        self.oracle.observe(draft, tokens)


class MeasuredEngine(HybridEngine):
    """The real engine; `script` takes the place of what would draft."""

    script: Drafting = NoDrafts()

    def _drafting(self, params: SamplingParams) -> Drafting:
        return self.script

    def layer_drafts(self, count: int) -> Drafting:
        """Exactly `count` ids a step by the MTP layer, as a request with `draft_tokens` gets."""
        params = SamplingParams(draft_tokens=count)
        return drafts_for(self._live, self._sampler, self._lookup, params, count, (MTP,))
