"""What steps took, as the estimates are told.

A device still works when the call that gave it its work is back. So what a prefill took is known
when the first id behind it is there: that must wait for all of it, and has no row of its own.
"""

import attrs

from flashrt.engine.protocol import DecodeChunk
from flashrt.policy.costs import CostModel
from flashrt.policy.steps import (
    Advance,
    Decode,
    Fetch,
    Lift,
    Prefill,
    Reset,
    Restore,
    Rollback,
    Step,
    StepResult,
)


@attrs.define
class Measured:
    """The steps of one item after the other."""

    costs: CostModel
    restore_ms: float | None = None
    """That all restores of the item took, reading included."""
    _fetch_ms: float = 0.0
    """Since the last of them."""
    _tokens: int = 0
    """Processed since the last id, a restore, or anything that drops ids."""
    _prefill_ms: float = 0.0
    """That their calls took."""

    def begin(self) -> None:
        """Another item: what the one before left open is never known."""
        self.restore_ms, self._fetch_ms = None, 0.0
        self._forget()

    def took(self, step: Step, result: StepResult, tokens: int, ms: float) -> None:
        """A step gave `result` after `ms` and moved the position by `tokens`."""
        match step:
            case Fetch() | Lift():
                self._fetch_ms += ms
            case Restore(capsule, tier):
                ms, self._fetch_ms = ms + self._fetch_ms, 0.0
                self.costs.restored(capsule.capsule_bytes, ms, tier)
                self.restore_ms = round((self.restore_ms or 0) + ms, 3)
                self._forget()
            case Reset() | Rollback():
                self._forget()
            case Prefill() | Advance() if isinstance(result, int):
                self._tokens, self._prefill_ms = self._tokens + tokens, self._prefill_ms + ms
            case Decode() | Advance() if isinstance(result, DecodeChunk):
                self.costs.prefilled(self._tokens, self._prefill_ms + ms)
                self._forget()

    def _forget(self) -> None:
        self._tokens, self._prefill_ms = 0, 0.0
