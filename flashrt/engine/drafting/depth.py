"""Who drafts next, and how many ids: as many as measured acceptance makes worth their cost."""

from collections.abc import Sequence

import attrs

from flashrt.engine.drafting.lookup import PROPOSED_MAX

MTP = "mtp"
LOOKUP = "lookup"

ROW_GROUP = 16
"""Rows are computed in groups of so many; the pending id's row is the first of the first group."""

FIRST_GUESS = 0.6
"""Acceptance of what has not been tried."""

WEIGHT = 0.15
"""How much of an estimate a new observation replaces."""

CATCHING_UP = 0.25
"""How far an untested estimate moves up to the one before it, in a step."""

PROBE_AFTER = 4
PROBE_AFTER_MAX = 16
"""Steps without a drafter until it is tried again; twice as many after each try."""


@attrs.frozen
class Choice:
    """What the next step drafts: `count` ids by `drafter`; or nothing, by nobody."""

    drafter: str = ""
    count: int = 0


@attrs.frozen
class Costs:
    """What drafts add to a step, as parts of a step without drafts."""

    row: float
    """For each drafted id: its row in the verifying pass."""
    group: float
    """For each further group of 16 rows that is begun."""
    mtp: float
    """For each id that the MTP layer drafts: its pass through the layer and the head."""

    def of(self, drafter: str, count: int) -> float:
        """A step's cost with that draft."""
        groups = count // ROW_GROUP
        return 1 + count * self.row + groups * self.group + count * self.mtp * (drafter == MTP)


@attrs.define
class _Acceptance:
    """One drafter's moving estimates: how often an id is right if all drafted before it were.

    Positions share one in bands: 0, 1, 2-3, 4-7, 8-15, 16-31, 32-62. A band that a step does not
    test catches up with the band before it, so that one bad stretch does not close it for ever.
    """

    rates: list[float] = attrs.field(factory=lambda: [FIRST_GUESS] * 7)
    unused_steps: int = 0
    probe_after: int = PROBE_AFTER

    def expected(self, most: int) -> list[float]:
        """Journal ids that a step with 0 .. `most` drafted ids is expected to add."""
        ids = [1.0]
        reached = 1.0
        for position in range(most):
            reached *= self.rates[position.bit_length()]
            ids.append(ids[-1] + reached)
        return ids

    def observe(self, count: int, accepted: int) -> None:
        """Learn from `count` ids, of which the first `accepted` were right."""
        tested = min(accepted + 1, count)
        for position in range(tested):
            band = position.bit_length()
            self.rates[band] += WEIGHT * ((position < accepted) - self.rates[band])
        for band in range((tested - 1).bit_length() + 1, len(self.rates)):
            behind = self.rates[band - 1] - self.rates[band]
            self.rates[band] += CATCHING_UP * max(behind, 0.0)

    def chosen(self) -> None:
        """It drafts, on its merits."""
        self.unused_steps, self.probe_after = 0, PROBE_AFTER

    def passed_over(self) -> bool:
        """It could draft and does not; whether it is to be tried all the same."""
        self.unused_steps += 1
        if self.unused_steps < self.probe_after:
            return False
        self.unused_steps = 0
        self.probe_after = min(2 * self.probe_after, PROBE_AFTER_MAX)
        return True


class DraftDepth:
    """Chooses drafter and depth for each step of one answer: most expected ids per cost.

    Plain arithmetic over what was observed: no clock, no dice. A drafter that is neither chosen nor
    watched drafts one id from time to time, so none is lost by a bad stretch.

    The MTP layer drafts up to `most` ids. Lookup has no cost of its own and goes up to 63; but no
    one drafts if `most` is 0. `exact`: not by merit, but so many in every step, up to `most`.
    """

    def __init__(
        self,
        most: int,
        costs: Costs,
        *,
        drafters: Sequence[str] = (MTP, LOOKUP),
        exact: int | None = None,
    ) -> None:
        self._most = most
        self._costs = costs
        self._exact = None if exact is None else min(exact, most)
        self._acceptance = {name: _Acceptance() for name in drafters}

    def next(self, lookup_available: int) -> Choice:
        """The next step's draft; lookup proposes `lookup_available` ids. Ask once a step."""
        best, best_gain = Choice(), 0.0 if self._exact else 1.0
        for name, acceptance in self._acceptance.items():
            expected = acceptance.expected(self._room(name, lookup_available))
            for count in self._counts(len(expected) - 1):
                gain = expected[count] / self._costs.of(name, count)
                if gain > best_gain:
                    best, best_gain = Choice(name, count), gain
        if self._exact is not None:
            return best
        return self._or_probe(best, best_gain, lookup_available)

    def observe(self, choice: Choice, accepted: int) -> None:
        """Learn that of a draft the first `accepted` ids were right."""
        assert 0 <= accepted <= choice.count, f"{accepted} accepted of {choice}"
        if choice.count:
            self._acceptance[choice.drafter].observe(choice.count, accepted)

    def watch(self, proposed: Sequence[int], tokens: Sequence[int]) -> None:
        """Learn for nothing what lookup's proposal would have been worth, beside a step's ids.

        For a step in which lookup did not draft, or its observation would count twice.
        """
        if LOOKUP not in self._acceptance:
            return
        pairs = list(zip(proposed, tokens, strict=False))
        right = next((i for i, (guess, token) in enumerate(pairs) if guess != token), len(pairs))
        if pairs:
            self._acceptance[LOOKUP].observe(min(right + 1, len(pairs)), right)
            self._acceptance[LOOKUP].unused_steps = 0

    def _room(self, name: str, lookup_available: int) -> int:
        """How many ids a drafter can draft now."""
        if self._most == 0 or self._exact == 0:
            return 0
        return min(PROPOSED_MAX, lookup_available) if name == LOOKUP else self._most

    def _counts(self, room: int) -> Sequence[int]:
        """The counts to choose from."""
        if self._exact is None:
            return range(1, room + 1)
        return [min(self._exact, room)] if room else []

    def _or_probe(self, best: Choice, best_gain: float, lookup_available: int) -> Choice:
        """`best`, or one id of a drafter that has been passed over for long enough.

        Not of one that could do no better if all its ids were right.
        """
        choice = best
        for name, acceptance in self._acceptance.items():
            room = self._room(name, lookup_available)
            if name == best.drafter:
                acceptance.chosen()
            elif (room + 1) / self._costs.of(name, room) > best_gain and acceptance.passed_over():
                choice = Choice(name, 1)
        return choice
