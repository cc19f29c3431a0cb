"""The real server over an engine whose steps take a given time, each of which is written down.

    python -m flashrt.bench.overhead.paced --steps FILE

The `seed` of a request is how many microseconds each of its decode steps takes. A step waits
without the interpreter's lock, as it does while a GPU works.
"""

import argparse
import sys
import time
from collections.abc import Iterator, Sequence
from itertools import cycle
from pathlib import Path

import trio

from flashrt.bench.overhead.clocked import StepWriter
from flashrt.demo import DEMO_PATH
from flashrt.engine.fake import FakeEngine
from flashrt.engine.protocol import Constraint, DecodeChunk, Engine, SamplingParams
from flashrt.policy.steps import Performer, Step, StepResult
from flashrt.serve import SWITCH_INTERVAL_S, load_voice, serve
from flashrt.settings import load

WORDS = " the quick brown fox jumps over the lazy dog"


class PacedEngine(FakeEngine):
    """Says the same words for ever, one each `seed` microseconds; reads a prompt in no time."""

    def __init__(self, words: Sequence[int], *, vocab_size: int, max_seq: int) -> None:
        super().__init__(vocab_size=vocab_size, max_seq=max_seq, identity="paced")
        self._words = tuple(words)

    def _decode(
        self, params: SamplingParams, constraint: Constraint | None
    ) -> Iterator[DecodeChunk]:
        words = cycle(self._words)
        while self.position + 1 < self.info.max_seq:
            if params.seed:
                time.sleep(params.seed / 1e6)
            if self._pending is not None:
                self._processed.append(self._pending)
            self._pending = next(words)
            yield DecodeChunk((self._pending,))


class ClockedPerformer(Performer):
    """Writes down when each step began and ended."""

    def __init__(self, engine: Engine, steps: StepWriter) -> None:
        super().__init__(engine)
        self._steps = steps

    def perform(self, step: Step) -> StepResult:
        start = time.perf_counter()
        result = super().perform(step)
        self._steps.write(start, time.perf_counter())
        return result


def main(arguments: Sequence[str] | None = None) -> int:
    """Serve on a free port until a signal; the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=Path, required=True, help="file for the times of steps")
    parser.add_argument("--max-seq", type=int, default=100_000)
    asked = parser.parse_args(arguments)
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    voice = load_voice(DEMO_PATH)
    engine = PacedEngine(
        voice.tokenizer.encode(WORDS),
        vocab_size=voice.tokenizer.vocab_size,
        max_seq=asked.max_seq,
    )
    settings = load({"port": "0", "log_level": "warning"}, {})
    performer = ClockedPerformer(engine, StepWriter(asked.steps))

    async def run() -> int:
        return await serve(settings, voice, engine, performer=performer)

    return trio.run(run)


if __name__ == "__main__":
    sys.exit(main())
