"""`flashrt_pin_prefix`: a state that stays in memory, whatever else wants its place."""

from collections.abc import Mapping

import attrs

from flashrt.policy.capsules import CapsuleStore
from flashrt.policy.cuts import CutRule
from flashrt.policy.prefix import PrefixPlan


@attrs.frozen(eq=False)
class Pin:
    """One request's wish: a number of tokens, True (the system turn), False or 0 (let go), None.

    `cut` is the last cut of the prompt at or below the number, None if there is none.
    """

    wish: int | bool | None
    plan: PrefixPlan
    store: CapsuleStore
    cut: int | None

    @classmethod
    def of(
        cls, wish: int | bool | None, plan: PrefixPlan, rule: CutRule, store: CapsuleStore
    ) -> "Pin":
        """The wish, along `plan`."""
        cuts = rule.cuts(plan.used) if wish else ()
        if wish is True:
            system_end = rule.system_end(plan.used)
            cut = system_end if system_end in cuts else max(cuts, default=None)
        else:
            cut = max((c for c in cuts if c <= int(wish or 0)), default=None)
        return cls(wish, plan, store, cut)

    def at_start(self) -> Mapping[str, object] | None:
        """What can be said before anything is fed; None: nothing yet, or nothing was asked for."""
        if self.wish is None:
            return None
        if not self.wish:
            return self._let_go()
        if self.cut is None:
            return {
                "refused": f"flashrt_pin_prefix is {str(self.wish).lower()}, but the prompt of "
                f"{len(self.plan.used)} tokens has no cut at or below it; cuts are the end of the "
                "system turn and the multiples of --chunk-tokens"
            }
        return self.at_cut() if self.cut <= self.plan.cached_tokens else None

    def at_cut(self) -> Mapping[str, object]:
        """Pin what is held at the cut, or the deepest that is held below it."""
        assert self.cut is not None
        entry = self.store.find(self.plan.namespace, self.plan.used.packed, at_most=self.cut)
        if entry is None:
            return {
                "refused": f"no state at or below {self.cut} tokens is held: it did not fit into "
                f"{self.store.budget_bytes >> 20} MiB (--capsule-budget-mb)"
            }
        refusal = self.store.pin(entry.key, budget_bytes=self.store.budget_bytes)
        if refusal is not None:
            return {"refused": refusal.reason}
        return {"pinned_tokens": entry.capsule.position}

    def _let_go(self) -> Mapping[str, object]:
        pinned = [
            e for e in self.store.path(self.plan.namespace, self.plan.used.packed) if e.pinned
        ]
        for entry in pinned:
            self.store.unpin(entry.key)
        return {"unpinned": len(pinned)}
