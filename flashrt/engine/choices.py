"""What the rows of one step are chosen by: all their scores, or their best ids alone."""

from collections.abc import Sequence

import attrs
from torch import Tensor

from flashrt.engine.protocol import RowConstraint, SamplingParams, TokenLogprobs
from flashrt.engine.sampler import Sampler, Shortlist, takes_likeliest


def best_is_all(params: SamplingParams) -> bool:
    """Whether nothing is read of an unconstrained row but which id is its best."""
    return params.logprobs is None and takes_likeliest(params)


@attrs.frozen(eq=False)
class Choices:
    """Of one step's rows."""

    sampler: Sampler
    params: SamplingParams
    logits: Tensor | None
    """[R, V] float32; None where `best_is_all`, and each row has one."""
    shortlists: Sequence[Shortlist | None]
    """Of each row, see `Sampler.shortlists`."""

    def of(self, row: int, journal: Sequence[int], allowed: RowConstraint) -> int:
        """The id for position len(journal); raises what `Sampler.choose` raises."""
        shortlist = self.shortlists[row]
        if self.logits is None:
            assert shortlist is not None
            return int(shortlist[0][0])
        return self.sampler.choose(
            self.logits[row], self.params, journal=journal, allowed=allowed, shortlist=shortlist
        )

    def told(self, accepted: Sequence[int]) -> tuple[TokenLogprobs, ...]:
        """What the rows say of the ids that were chosen from them, if that was asked for."""
        count = self.params.logprobs
        if count is None or self.logits is None:
            return ()
        return tuple(
            self.sampler.logprobs(self.logits[row], id_, count) for row, id_ in enumerate(accepted)
        )
