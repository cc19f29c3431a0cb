"""What was measured, as a table and as JSON."""

from typing import Any

import attrs

from flashrt.bench.overhead.figures import Pair, Spread
from flashrt.bench.overhead.neighbours import MEGABYTE, STREAMS, Health
from flashrt.bench.overhead.streams import Compared

HEALTH_P99_MAX_MS = 50.0
UNCHANGED = 1.1
"""A ratio up to which a time counts as the same: a busy machine does not measure better."""


@attrs.frozen
class Report:
    """One run. `jobs` by name; each is what both servers took beyond their engine's own time."""

    cores: int
    jobs: dict[str, Compared]
    health: Health
    stopped_reader: Pair

    def goals(self) -> dict[str, bool]:
        """What should hold, and whether it did."""
        ratio = self.stopped_reader.ratio
        return {
            f"/health beside {STREAMS} streams: p99 < {HEALTH_P99_MAX_MS:g} ms": (
                self.health.streams.p99_ms < HEALTH_P99_MAX_MS
            ),
            f"/health beside them and bodies of 1 MB: p99 < {HEALTH_P99_MAX_MS:g} ms": (
                self.health.bodies.p99_ms < HEALTH_P99_MAX_MS
            ),
            f"first token behind a reader that stopped: at most {UNCHANGED:g} x": (
                ratio is not None and ratio <= UNCHANGED
            ),
        }

    def as_json(self) -> dict[str, Any]:
        """All of it; times are in milliseconds."""
        return {
            "cores": self.cores,
            "jobs": {name: job.report() for name, job in self.jobs.items()},
            "health": attrs.asdict(self.health),
            "first_token_behind_a_stopped_reader": self.stopped_reader.report(),
            "goals": self.goals(),
        }

    def lines(self) -> list[str]:
        """For a person; the last lines are the goals."""
        return [
            *(line for name, job in self.jobs.items() for line in _job(name, job)),
            f"{'/health, ms':<48}{'p50':>9}{'p99':>9}{'max':>9}",
            _spread("  quiet", self.health.quiet),
            _spread(f"  beside {STREAMS} streams", self.health.streams),
            _spread(
                f"  and {self.health.bodies_posted} bodies of {MEGABYTE >> 20} MB",
                self.health.bodies,
            ),
            "",
            f"{'first token of the next client, ms':<48}{'stopped':>9}{'reads':>9}{'ratio':>9}",
            _pair("  behind a reader that stopped", self.stopped_reader),
            "",
            *(f"{'met   ' if met else 'MISSED'}  {goal}" for goal, met in self.goals().items()),
        ]


def _job(name: str, job: Compared) -> list[str]:
    head = f"{name}: {job.tokens} tokens, {job.chunks} chunks"
    lines = [
        f"{head + '; beyond the engine, ms':<57}{'flashrt':>9}{'bare':>9}{'ratio':>9}{'more':>9}",
        _pair("  request to first byte", job.head, more=True),
        _pair("  request to first token", job.first_token, more=True),
        _pair("  each further token", job.per_token, more=True),
    ]
    if job.delivery is not None:
        lines.append(_spread("  step's end to the client (p50, p99, max)", job.delivery))
    if job.bare_delivery is not None:
        lines.append(_spread("  the same of the bare server", job.bare_delivery))
    return [*lines, ""]


def _pair(what: str, pair: Pair, *, more: bool = False) -> str:
    ratio = "-" if pair.ratio is None else f"{pair.ratio:.2f}"
    line = f"{what:<{57 if more else 48}}{pair.ours_ms:>9.3f}{pair.other_ms:>9.3f}{ratio:>9}"
    return line + (f"{pair.extra_ms:>9.3f}" if more else "")


def _spread(what: str, spread: Spread) -> str:
    return f"{what:<48}{spread.p50_ms:>9.2f}{spread.p99_ms:>9.2f}{spread.max_ms:>9.2f}"
