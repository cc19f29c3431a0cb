"""Runs one measurement: loads the engine, measures the machine, and prints line by line."""

import importlib
from types import ModuleType

from flashrt.bench.engine.options import Options
from flashrt.bench.engine.rates import measured
from flashrt.bench.engine.report import Report, begun
from flashrt.bench.engine.subject import Subject

ALONE = ("turn", "peers")
"""What does not measure an engine of this process alone."""


def run(name: str, options: Options) -> int:
    """Measure `name` and print a table; the exit status. Raises CannotServe."""
    report = report_of(name, options)
    if options.json is not None:
        report.write(options.json)
    return 0


def report_of(name: str, options: Options) -> Report:
    """As it has been printed."""
    part: ModuleType = importlib.import_module(f"flashrt.bench.engine.{name}")
    if name in ALONE:
        return part.report(options)
    subject = Subject.of(options, part.window(options))
    rates = measured(subject.clock, subject.dtype)
    report = begun(name, options, subject.clock.device, subject.dtype, rates)
    for figure in part.measure(subject, options, subject.bounds(rates)):
        report.add(figure)
    report.note(f"graphs captured since start: {subject.engine.graph_capture_count}")
    return report
