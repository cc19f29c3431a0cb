"""Figures as they are measured: a line of a table each, and all of them as JSON at the end."""

import json
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs
import torch

from flashrt.bench.engine.machine import facts
from flashrt.bench.engine.options import Options
from flashrt.bench.engine.rates import Rates

HEAD = f"{'work':<36}{'context':>9}{'ms':>11}{'worst':>11}{'bound':>11}{'x':>7}  more"

UNTOLD = ("json", "model", "shape")
"""Options that a report does not repeat: the subject's name says them."""

RATES = {
    "read_bytes": ("reads", "TB/s"),
    "copy_bytes": ("copies", "TB/s"),
    "flops": ("multiplies", "TFLOP/s"),
}


@attrs.frozen
class Figure:
    """One measured time. `bound_ms` None: nothing says how quick it could be."""

    work: str
    context: int
    """Tokens before the work, or in the prompt."""
    ms: float
    """The median."""
    worst_ms: float
    count: int
    bound_ms: float | None = None
    more: Mapping[str, float] = attrs.field(factory=dict)
    """What follows from it, by name and unit."""

    @classmethod
    def of(
        cls,
        work: str,
        context: int,
        times_ms: Sequence[float],
        bound_ms: float | None = None,
        **more: float,
    ) -> "Figure":
        """Of at least one time."""
        middle, worst = statistics.median(times_ms), max(times_ms)
        return cls(work, context, middle, worst, len(times_ms), bound_ms, more)

    def line(self) -> str:
        """For people: times the bound under x."""
        bound, ratio = "", ""
        if self.bound_ms:
            bound, ratio = f"{self.bound_ms:.3f}", f"{self.ms / self.bound_ms:.2f}"
        more = "  ".join(f"{name} {value:.4g}" for name, value in self.more.items())
        times = f"{self.ms:>11.3f}{self.worst_ms:>11.3f}"
        return f"{self.work:<36}{self.context:>9}{times}{bound:>11}{ratio:>7}  {more}".rstrip()


@attrs.define
class Report:
    """What one command has found; prints while it measures, since that may take minutes."""

    command: str
    subject: str
    """What was measured."""
    machine: Mapping[str, object]
    """See `machine.facts`."""
    rates: Mapping[str, float]
    """What the machine reaches at best, see `rates.Rates`."""
    options: Mapping[str, object]
    """What was asked for."""
    figures: list[Figure] = attrs.field(factory=list)
    notes: list[str] = attrs.field(factory=list)

    def begin(self) -> None:
        """Print what is measured where, and the table's head."""
        known = [f"{name} {value}" for name, value in self.machine.items() if value is not None]
        rates = [f"{verb} {self.rates[n] / 1e12:.3f} {unit}" for n, (verb, unit) in RATES.items()]
        print(f"{self.command} of {self.subject}")
        print("on " + ", ".join(known))
        print("which " + ", ".join(rates))
        print(HEAD, flush=True)

    def add(self, figure: Figure) -> None:
        """Print and keep it."""
        self.figures.append(figure)
        print(figure.line(), flush=True)

    def note(self, text: str) -> None:
        """A sentence under the table."""
        self.notes.append(text)
        print(text, flush=True)

    def as_json(self) -> dict[str, Any]:
        """Everything, for a file."""
        return {
            "command": self.command,
            "subject": self.subject,
            "machine": dict(self.machine),
            "rates_per_s": dict(self.rates),
            "options": dict(self.options),
            "figures": [attrs.asdict(figure) for figure in self.figures],
            "notes": self.notes,
        }

    def write(self, file: Path) -> None:
        """As JSON."""
        file.write_text(json.dumps(self.as_json(), indent=1) + "\n", encoding="utf-8")


def begun(
    command: str, options: Options, device: torch.device, dtype: torch.dtype, rates: Rates
) -> Report:
    """A report whose head is printed."""
    wishes = attrs.asdict(options, filter=lambda field, _: field.name not in UNTOLD)
    report = Report(command, options.name, facts(device, dtype), attrs.asdict(rates), wishes)
    report.begin()
    return report
