"""How much drafts gain: python -m flashrt.bench.drafts [CHECKPOINT].

Decodes the same ids with drafts off and on: by the MTP layer at several depths, as the engine
adapts by itself, by prompt lookup of a file that is quoted, and by an oracle that knows the text.
The ids must be the same every time; the command says so, or fails.
"""

import argparse
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import attrs
import numpy as np

from flashrt.demo import DEMO_PATH
from flashrt.engine.hybrid import HybridEngine
from flashrt.engine.protocol import Capsule, Constraint, SamplingParams
from flashrt.engine.speculate import Draft, Drafting

DEPTHS = (1, 3, 8)


@attrs.frozen
class Oracle:
    """Drafts the text that is known."""

    text: Sequence[int]
    count: int

    def propose(self, journal: list[int], room: int) -> Draft:
        """Always right."""
        ids = self.text[len(journal) : len(journal) + min(self.count, room)]
        return Draft(tuple(ids), "oracle")

    def observe(self, draft: Draft, tokens: Sequence[int]) -> None:
        """Nothing to learn."""


class Engine(HybridEngine):
    """The real engine, with an oracle in the place of its drafters where one is set."""

    oracle: Oracle | None = None

    def _drafting(self, params: SamplingParams) -> Drafting:
        return self.oracle or super()._drafting(params)


@attrs.frozen
class Figures:
    """What one way of drafting took."""

    name: str
    ids: tuple[int, ...]
    seconds: float
    steps: int
    drafted: int

    @property
    def per_second(self) -> float:
        """Ids decoded a second."""
        return len(self.ids) / self.seconds

    def line(self, off: "Figures") -> str:
        """For people."""
        right = len(self.ids) - self.steps
        share = f"{right / self.drafted:4.0%} of drafts right" if self.drafted else ""
        gain = self.per_second / off.per_second
        line = f"{self.name:<20} {self.per_second:8.1f} tokens/s  x{gain:5.2f}"
        return f"{line}  {len(self.ids) / self.steps:5.2f} tokens a step  {share}".rstrip()


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and print a line per way of drafting."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", nargs="?", type=Path, default=DEMO_PATH, help="checkpoint folder")
    parser.add_argument("--tokens", type=int, default=256, help="decoded by each way")
    parser.add_argument("--prompt", type=int, default=512, help="tokens before them")
    parser.add_argument("--temperature", type=float, default=0.0)
    asked = parser.parse_args(arguments)
    window = asked.prompt + 2 * asked.tokens + 64
    engine = Engine.load(asked.model, max_seq=window, progress=False)
    assert isinstance(engine, Engine)
    info = engine.info
    print(
        f"{info.model_name}, {info.dtype} on {info.device}, {asked.tokens} tokens behind a prompt"
    )
    params = SamplingParams(temperature=asked.temperature, seed=1)
    for group in (_free(engine, asked, params), _quoting(engine, asked, params)):
        off: Figures | None = None
        for figures in group:
            off = off or figures
            if figures.ids != off.ids:
                raise SystemExit(f"{figures.name}: other ids than without drafts")
            print(figures.line(off))
    print("the same ids every time")


def _free(engine: Engine, asked: argparse.Namespace, params: SamplingParams) -> Iterator[Figures]:
    """Whatever the model says."""
    start = _prefilled(engine, _ids(asked.prompt, engine.info.vocab_size, 1))

    def timed(name: str, draft_tokens: int | None) -> Figures:
        wanted = attrs.evolve(params, draft_tokens=draft_tokens)
        return _timed(engine, start, name, asked.tokens, wanted)

    yield timed("off", 0)
    text = tuple(engine.journal)
    if "mtp" in engine.info.drafters:
        for depth in DEPTHS:
            yield timed(f"{depth} drafted", depth)
    yield timed("adaptive", None)
    for count in DEPTHS:
        engine.oracle = Oracle(text, count)
        yield timed(f"oracle of {count}", None)
    engine.oracle = None


def _quoting(
    engine: Engine, asked: argparse.Namespace, params: SamplingParams
) -> Iterator[Figures]:
    """A file that the prompt holds is the only thing allowed."""
    vocab = engine.info.vocab_size
    file = _ids(asked.tokens, vocab, 2)
    start = _prefilled(engine, (*_ids(asked.prompt, vocab, 1), *file))
    for name, draft_tokens in (("quoting, off", 0), ("quoting, adaptive", None)):
        wanted = attrs.evolve(params, draft_tokens=draft_tokens)
        yield _timed(engine, start, name, len(file), wanted, lambda: _only(file, vocab))


def _only(file: Sequence[int], vocab_size: int) -> Constraint:
    """Allows the next id of the file."""
    seen = 0

    def constraint(accepted: Sequence[int], draft: Sequence[int]) -> list[np.ndarray]:
        nonlocal seen
        seen += len(accepted)
        rows = np.zeros((len(draft) + 1, vocab_size), np.bool_)
        for i, row in enumerate(rows):
            row[file[min(seen + i, len(file) - 1)]] = True
        return list(rows)

    return constraint


def _prefilled(engine: Engine, ids: Sequence[int]) -> Capsule:
    engine.reset()
    for _ in engine.prefill(ids):
        pass
    return engine.snapshot()


def _timed(
    engine: Engine,
    start: Capsule,
    name: str,
    count: int,
    params: SamplingParams,
    limits: Callable[[], Constraint] | None = None,
) -> Figures:
    """Decode `count` ids from a capsule; what a last burst brings beyond them is cut off."""
    engine.restore(start)
    ids: list[int] = []
    steps = drafted = 0
    begun = time.perf_counter()
    for chunk in engine.decode(params, limits() if limits else None):
        ids += chunk.tokens
        steps += 1
        drafted += chunk.drafted
        if len(ids) >= count:
            break
    seconds = time.perf_counter() - begun
    return Figures(name, tuple(ids[:count]), seconds * count / len(ids), steps, drafted)


def _ids(count: int, vocab_size: int, seed: int) -> tuple[int, ...]:
    return tuple(np.random.default_rng(seed).integers(0, vocab_size, count).tolist())


if __name__ == "__main__":
    main()
