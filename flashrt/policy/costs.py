"""How long the ways to a first token take: estimates, fed with what was measured.

A prefill costs a constant, in which the weights are read, and something for each token; bringing a
capsule back costs by its bytes. No clock in here: the engine thread tells what a step took.
"""

import math

import attrs

from flashrt.policy.tiers import Tier

WEIGHT = 0.2
"""Of the newest measurement in the running estimate."""

OUTLIER = 10.0
"""A measurement counts as at most so many times the estimate, or so small a part of it: a hiccup
is no new speed."""

PROBE_TOKENS = 64
"""A prefill of fewer tokens tells what a call costs, a longer one what a token does."""


RATES = {Tier.DEVICE: "restore_mib_ms", Tier.HOST: "host_mib_ms", Tier.DISK: "disk_mib_ms"}
"""Each tier's own milliseconds per MiB."""


@attrs.define
class CostModel:
    """Estimated milliseconds. The first values are those of a small model on a CPU."""

    prefill_call_ms: float = 5.0
    prefill_token_ms: float = 0.2
    restore_mib_ms: float = 0.2
    host_mib_ms: float = 0.3
    disk_mib_ms: float = 1.0

    def prefill_ms(self, tokens: int) -> float:
        """To process so many tokens; nothing for none."""
        return self.prefill_call_ms + tokens * self.prefill_token_ms if tokens > 0 else 0.0

    def restore_ms(self, capsule_bytes: int, tier: Tier = Tier.DEVICE) -> float:
        """To bring back a capsule of that size from where it lies."""
        rate: float = getattr(self, RATES[tier])
        return max(capsule_bytes, 0) / 2**20 * rate

    def prefilled(self, tokens: int, ms: float) -> None:
        """A prefill of so many tokens took `ms`."""
        if tokens <= 0 or not 0 < ms < math.inf:
            return
        if tokens < PROBE_TOKENS:
            per_call = ms - tokens * self.prefill_token_ms
            self.prefill_call_ms = _moved(self.prefill_call_ms, per_call)
        else:
            per_token = (ms - self.prefill_call_ms) / tokens
            self.prefill_token_ms = _moved(self.prefill_token_ms, per_token)

    def restored(self, capsule_bytes: int, ms: float, tier: Tier = Tier.DEVICE) -> None:
        """A capsule of that size was brought back in `ms`, reading included."""
        if capsule_bytes > 0 and 0 < ms < math.inf:
            rate: float = getattr(self, RATES[tier])
            setattr(self, RATES[tier], _moved(rate, ms / (capsule_bytes / 2**20)))


def _moved(estimate: float, measured: float) -> float:
    """The estimate, a step nearer to a measurement.

    What is left of one after the other part's estimate is taken off may be below 0: then both are
    too high, and this one comes down.
    """
    within = min(max(measured, estimate / OUTLIER), estimate * OUTLIER)
    return estimate + WEIGHT * (within - estimate)
