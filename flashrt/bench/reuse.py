"""What reuse saves: python -m flashrt.bench.reuse [MODEL].

Time to the first token of a warm turn, of the same turn after another request came between, and of
the same prompt read from 0; and how long the plan itself takes over a thousand capsules.
"""

import argparse
import random
import statistics
import time
from collections.abc import Sequence
from pathlib import Path

from flashrt.chat.deltas import Ending, Fed, FinishReason
from flashrt.chat.prompt import Prompt
from flashrt.chat.visible import Visible
from flashrt.demo import DEMO_PATH
from flashrt.engine.assets import find_model
from flashrt.engine.hybrid import HybridEngine
from flashrt.engine.placement import Placement
from flashrt.engine.protocol import Capsule, RowBlock, SamplingParams, pack_ids
from flashrt.policy.auto_prefix import AutoPrefixPolicy
from flashrt.policy.cuts import CutRule
from flashrt.policy.spacing import Kind
from flashrt.policy.steps import Performer
from flashrt.policy.turn import Answered, Planned, Turn
from flashrt.policy.turn_loop import TurnLoop

CHUNK_TOKENS = 1024
ROOM = 1 << 40
CAPSULES = 1000


class OneToken:
    """An answer of one token: what is measured is the time to it."""

    visible = Visible()

    def feed(self, tokens: tuple[int, ...]) -> Fed:
        """It ends at once."""
        return Fed((), Ending(FinishReason.LENGTH, 1, 1))

    def window_end(self) -> Fed:
        """There was no room for it."""
        return Fed((), Ending(FinishReason.LENGTH, 0, 0))


class Never:
    """Nobody cancels."""

    cancelled = False


class Bench:
    """One engine, and turns of id prompts on it."""

    def __init__(self, engine: HybridEngine, seed: int = 1) -> None:
        self.engine = engine
        self._rng = random.Random(seed)
        self._performer = Performer(engine)
        policy = AutoPrefixPolicy(max_seq=engine.info.max_seq, capsule_budget_bytes=ROOM)
        self._loop = TurnLoop(policy, CutRule(CHUNK_TOKENS))

    def ids(self, count: int) -> list[int]:
        """Random ids of the vocabulary."""
        return [self._rng.randrange(self.engine.info.vocab_size) for _ in range(count)]

    def turn(self, prompt: Sequence[int], namespace: str = "a") -> tuple[float, str, int]:
        """Milliseconds to the first token, the action, and the tokens that were computed."""
        turn = Turn(Prompt.from_ids(prompt), SamplingParams(), OneToken(), Never(), namespace)
        start, first_ms, plan = time.perf_counter(), 0.0, None
        for events in self._loop.run(turn, self._performer.perform):
            for event in events:
                if isinstance(event, Planned):
                    plan = event.plan
                if isinstance(event, Answered):
                    first_ms = (time.perf_counter() - start) * 1000
        assert plan is not None, "every turn has a plan"
        return first_ms, plan.action.value, len(plan.new_ids)

    def measure(self, prefix: int, tail: int, repeat: int) -> dict[str, float]:
        """Medians of the three ways to the same length."""
        times: dict[str, list[float]] = {"cold": [], "append": [], "restore": []}
        for number in range(repeat):
            history, space = self.ids(prefix), f"{prefix} {number}"
            self.turn(history, space)
            for want in ("append", "restore"):
                history = [*history, *self.ids(tail)]
                if want == "restore":
                    self.turn(self.ids(40), "another")
                ms, action, _ = self.turn(history, space)
                assert action == want, f"{want} was a {action}"
                times[want].append(ms)
            ms, action, _ = self.turn(history, f"{space} cold")
            assert action == "rebuild", f"cold was a {action}"
            times["cold"].append(ms)
        return {name: statistics.median(values) for name, values in times.items()}


def plan_ms(prompt_tokens: int, repeat: int) -> tuple[float, float]:
    """Median and largest milliseconds of a plan among many capsules of one namespace."""
    rng = random.Random(1)
    ids = [rng.randrange(200_000) for _ in range(prompt_tokens)]
    policy = AutoPrefixPolicy(max_seq=10 * prompt_tokens, capsule_budget_bytes=ROOM)
    for number in range(CAPSULES):
        length = prompt_tokens * (number + 1) // (CAPSULES + 1) + 1
        row = RowBlock(0, pack_ids(ids[:length]), {}, 1)
        capsule = Capsule(length, None, "bench", {}, 1, (row,))
        policy.store.put(
            capsule, namespace="a", session=f"s{number}", kind=Kind.CUT, turn=1, lineage=()
        )
    prompt, times = Prompt.from_ids(ids), []
    for _ in range(repeat):
        start = time.perf_counter()
        policy.plan(prompt, salt="a")
        times.append((time.perf_counter() - start) * 1000)
    return statistics.median(times), max(times)


def main(arguments: Sequence[str] | None = None) -> None:
    """Print a table: one line for each length of the prefix."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", nargs="?", help="checkpoint; without it the bundled demo")
    parser.add_argument("--prefix", type=int, nargs="+", default=[1000, 4000, 16000])
    parser.add_argument("--tail", type=int, default=100, help="new tokens of the warm turn")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--dtype", default="auto")
    asked = parser.parse_args(arguments)
    path = Path(find_model(asked.model)) if asked.model else DEMO_PATH
    place = Placement.of(asked.device, asked.dtype)
    max_seq = max(asked.prefix) + 3 * asked.tail + 8
    bench = Bench(HybridEngine.load(path, device=place.device, dtype=place.dtype, max_seq=max_seq))
    print(f"{'prefix':>8} {'cold ms':>10} {'append ms':>10} {'restore ms':>10}  cold/restore")
    for prefix in asked.prefix:
        got = bench.measure(prefix, asked.tail, asked.repeat)
        ratio = got["cold"] / got["restore"]
        print(
            f"{prefix:>8} {got['cold']:>10.1f} {got['append']:>10.1f} {got['restore']:>10.1f} "
            f"{ratio:>8.1f} x"
        )
    middle, most = plan_ms(30_000, 200)
    print(
        f"a plan for 30000 tokens over {CAPSULES} capsules: median {middle:.3f} ms, max {most:.3f}"
    )


if __name__ == "__main__":
    main()
