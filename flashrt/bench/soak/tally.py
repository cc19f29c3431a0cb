"""What the clients did, what they were answered, and what should not have been."""

import statistics
from collections import Counter
from typing import Any

import attrs

RECORDED = frozenset({"/v1/chat/completions", "/v1/completions", "/v1/sessions"})
"""Routes whose requests wait in the service's line and get a record. A probe lists sessions, and a
session call is counted like any other request."""

REFUSED_BY_ADMISSION = frozenset({"context_length_exceeded", "queue_full"})
"""Codes of refusals that the service has a record of; others come before it."""


@attrs.frozen
class Violation:
    """A guarantee that did not hold. `action`: its number, -1 for what is no client's."""

    action: int
    name: str
    client: int
    what: str


@attrs.define
class Records:
    """Requests that the service must have a record of, as the clients know it.

    `answered`: a head with status 200 came on a route of `RECORDED`; of these `finished` were read
    to their end. `refused`: admission said no, in a code that says so. `unknown`: the whole request
    was sent, and the client left, or was cut off, before it knew more. A request that never was
    whole, or that was refused for what it is (400, 401, 403, 404, 405, 415), has none.
    """

    answered: int = 0
    finished: int = 0
    refused: int = 0
    unknown: int = 0

    @property
    def least(self) -> int:
        return self.answered + self.refused

    @property
    def most(self) -> int:
        return self.least + self.unknown

    def wrong(self, counted: dict[str, int]) -> list[str]:
        """What does not agree with the server's own counts, by terminal state."""
        total = sum(counted.values())
        done, rejected = counted.get("DONE", 0), counted.get("REJECTED", 0)
        bounds = (
            ("requests", total, self.least, self.most),
            ("DONE", done, self.finished, self.answered + self.unknown),
            ("REJECTED", rejected, self.refused, self.refused + self.unknown),
            ("ERROR", counted.get("ERROR", 0), 0, 0),
        )
        return [
            f"the server has counted {count} {name}, the clients {least} to {most}"
            for name, count, least, most in bounds
            if not least <= count <= most
        ]


@attrs.define
class Tally:
    """Everything that the clients saw. `finished`: actions that are over."""

    records: Records = attrs.field(factory=Records)
    times_ms: dict[str, list[float]] = attrs.field(factory=dict)
    statuses: Counter[tuple[str, str]] = attrs.field(factory=Counter)
    violations: list[Violation] = attrs.field(factory=list)
    finished: int = 0

    def saw(self, action: str, status: str | int) -> None:
        """A status, or "left" for a client that did not wait for one."""
        self.statuses[action, str(status)] += 1

    def took(self, action: str, ms: float) -> None:
        """An action is over."""
        self.times_ms.setdefault(action, []).append(ms)
        self.finished += 1

    def report(self) -> list[dict[str, Any]]:
        """One entry for each kind of action."""
        return [
            {
                "action": name,
                "times": len(times),
                "median_ms": round(statistics.median(times), 1),
                "max_ms": round(max(times), 1),
                "answers": {s: n for (a, s), n in sorted(self.statuses.items()) if a == name},
            }
            for name, times in sorted(self.times_ms.items())
        ]
