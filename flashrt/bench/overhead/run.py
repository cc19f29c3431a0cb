"""What the server adds to the engine's own time: python -m flashrt.bench.overhead [--json FILE].

Streams of the real server are compared with a bare trio + h11 server in the same run, which writes
as many chunks of the same sizes after the same steps. Then /health is probed beside eight streams
of the demo checkpoint, and a client's first token is timed behind a reader that has stopped. All
servers are processes of their own on this machine.
"""

import argparse
import json
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path

import attrs
import trio

from flashrt.bench.overhead import neighbours
from flashrt.bench.overhead.clocked import StepReader
from flashrt.bench.overhead.report import Report
from flashrt.bench.overhead.streams import PACED, Compared, Job, compare, long_job, short_job
from flashrt.bench.soak.process import server_process

DEMO_FLAGS = ("--port", "0", "--max-seq", "4096", "--log-level", "warning")
FIRST_TOKENS = 5
"""Tokens of an answer of which only the beginning is looked at."""

STEP_US = 500
"""Of the answer that somebody stops reading: as quick as it may be, and not in no time."""


@attrs.frozen
class Options:
    """How much is done."""

    tokens: int
    paced_tokens: int
    step_ms: float
    repeat: int
    history_kb: int
    probes: int
    stopped_tokens: int


async def measure(options: Options) -> Report:
    """All of it, one after the other, so that nothing disturbs another."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        steps = folder / "paced.steps"
        async with server_process(("--steps", str(steps)), command=PACED) as paced:
            compared: dict[str, Compared] = {}
            for job_name, job in _jobs(options).items():
                compared[job_name] = await compare(paced.place, StepReader(steps), job, folder)
            stopped = await neighbours.stopped_reader(
                paced.place, options.stopped_tokens, STEP_US, options.repeat
            )
    async with server_process(DEMO_FLAGS) as demo:
        health = await neighbours.health(demo.place, options.probes)
    return Report(len(os.sched_getaffinity(0)), compared, health, stopped)


def _jobs(options: Options) -> dict[str, Job]:
    """By name: as fast as it goes, at an engine's pace, and the beginnings of warm long turns."""
    step_us, repeat = round(options.step_ms * 1000), options.repeat
    return {
        "flat out": short_job(options.tokens, 0, repeat),
        f"steps of {options.step_ms:g} ms": short_job(options.paced_tokens, step_us, repeat),
        f"warm turn of {options.history_kb} kB": long_job(
            options.history_kb, FIRST_TOKENS, step_us, repeat
        ),
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table; the exit status."""
    words = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=words)
    parser.add_argument("--tokens", type=int, default=2000, help="of answers without any pace")
    parser.add_argument("--paced-tokens", type=int, default=200, help="of answers at a pace")
    parser.add_argument("--step-ms", type=float, default=10, help="the pace: a step of the engine")
    parser.add_argument("--repeat", type=int, default=9, help="requests of each kind")
    parser.add_argument("--history-kb", type=int, default=100, help="of the long prompt")
    parser.add_argument("--probes", type=int, default=1000, help="of /health, in each state")
    parser.add_argument(
        "--stopped-tokens", type=int, default=2000, help="of the answer that nobody reads"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures there")
    asked = vars(parser.parse_args(arguments))
    file = asked.pop("json")
    try:
        if file is not None:
            file.open("a").close()
    except OSError as error:
        parser.error(f"--json: cannot write {file}: {error.strerror}")
    report = trio.run(measure, Options(**asked))
    print("\n".join(report.lines()))
    if file is not None:
        file.write_text(json.dumps(report.as_json(), indent=1) + "\n", encoding="utf-8")
    return 0
