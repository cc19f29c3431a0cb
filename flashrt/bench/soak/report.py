"""What a soak came to, as a table and as JSON."""

from typing import Any

import attrs

from flashrt.bench.soak.process import MIB, Usage
from flashrt.bench.soak.tally import Tally

SHOWN_VIOLATIONS = 50


@attrs.define
class Outcome:
    """A soak that is over. `counted`: requests by terminal state, as the server counts them.

    `usage`: of the server's process, by when it was read; empty for a server of somebody else's.
    """

    seed: int
    clients: int
    tally: Tally
    seconds: float = 0.0
    equal: int = 0
    near_ties: int = 0
    counted: dict[str, int] = attrs.field(factory=dict)
    usage: dict[str, Usage] = attrs.field(factory=dict)
    exit_status: int | None = None

    def as_json(self) -> dict[str, Any]:
        """All of it."""
        return {
            "seed": self.seed,
            "clients": self.clients,
            "actions": self.tally.finished,
            "seconds": round(self.seconds, 1),
            "by_action": self.tally.report(),
            "answers": {"equal": self.equal, "near_ties": self.near_ties},
            "records": {**attrs.asdict(self.tally.records), "counted": self.counted},
            "usage": {when: attrs.asdict(usage) for when, usage in self.usage.items()},
            "exit_status": self.exit_status,
            "violations": [attrs.asdict(violation) for violation in self.tally.violations],
        }

    def lines(self) -> list[str]:
        """For a person; the last line is the verdict."""
        return [*self._table(), "", *self._sums(), "", *self._violations(), self._verdict()]

    def _table(self) -> list[str]:
        lines = [f"{'action':<20}{'times':>7}{'median ms':>11}{'max ms':>9}  answers"]
        for row in self.tally.report():
            answers = ", ".join(f"{count} x {status}" for status, count in row["answers"].items())
            lines.append(
                f"{row['action']:<20}{row['times']:>7}{row['median_ms']:>11}{row['max_ms']:>9}  "
                f"{answers}"
            )
        return lines

    def _sums(self) -> list[str]:
        records = self.tally.records
        states = ", ".join(f"{count} {state}" for state, count in sorted(self.counted.items()))
        lines = [
            f"answers   {self.equal} equal the reference, {self.near_ties} up to a near tie",
            f"records   {sum(self.counted.values())} ({states}); the clients know of "
            f"{records.least}, and left {records.unknown} without knowing how far they got",
        ]
        for when, usage in self.usage.items():
            lines.append(
                f"process   {when}: {usage.descriptors} descriptors, {usage.threads} threads, "
                f"{usage.rss_bytes / MIB:.1f} MiB"
            )
        if self.exit_status is not None:
            lines.append(f"process   exit status {self.exit_status} on SIGTERM")
        return lines

    def _violations(self) -> list[str]:
        # What is nobody's own says the most.
        shown = sorted(self.tally.violations, key=lambda one: one.action)[:SHOWN_VIOLATIONS]
        lines = []
        for one in shown:
            where = f"action {one.action} ({one.name}, client {one.client})"
            lines.append(f"VIOLATION {where if one.action >= 0 else one.name}: {one.what}")
        more = len(self.tally.violations) - len(shown)
        return lines + ([f"... and {more} more"] if more else [])

    def _verdict(self) -> str:
        again = f"--seed {self.seed} --clients {self.clients}"
        return (
            f"{again}: {self.tally.finished} actions in {self.seconds:.0f} s, "
            f"{len(self.tally.violations)} violations"
        )
