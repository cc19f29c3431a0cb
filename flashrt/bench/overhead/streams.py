"""Streams of our server, and the same chunks from a bare one: what each takes beyond its engine."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import attrs

from flashrt.bench.overhead.clocked import StepReader
from flashrt.bench.overhead.figures import Pair, Spread
from flashrt.bench.overhead.heard import Heard, Listener, chat
from flashrt.bench.soak.process import server_process
from flashrt.bench.soak.wire import Place

BARE = ("flashrt.bench.overhead.bare",)
PACED = ("flashrt.bench.overhead.paced",)

HISTORY_MESSAGES = 30
LINE = "def handle(request):  # line {number}\n    return render(request, number={number})\n"


@attrs.define
class Samples:
    """What one server took, in milliseconds beyond its engine's own time."""

    head_ms: list[float] = attrs.field(factory=list)
    first_token_ms: list[float] = attrs.field(factory=list)
    per_token_ms: list[float] = attrs.field(factory=list)
    delivery_ms: list[float] = attrs.field(factory=list)


@attrs.frozen
class Job:
    """What is asked, again and again. `step_us`: what a decode step takes."""

    bodies: Sequence[bytes]
    tokens: int
    step_us: int


@attrs.frozen
class Compared:
    """One job on both servers. `chunks`: of an answer, the first and the last ones included."""

    tokens: int
    chunks: int
    head: Pair
    first_token: Pair
    per_token: Pair
    delivery: Spread | None
    bare_delivery: Spread | None

    def report(self) -> dict[str, Any]:
        """For JSON."""
        spreads = {"delivery": self.delivery, "bare_delivery": self.bare_delivery}
        return {
            "tokens": self.tokens,
            "chunks": self.chunks,
            "request_to_first_byte": self.head.report(),
            "request_to_first_token": self.first_token.report(),
            "per_token": self.per_token.report(),
            **{name: None if s is None else attrs.asdict(s) for name, s in spreads.items()},
        }


async def compare(ours: Place, steps: StepReader, job: Job, folder: Path) -> Compared:
    """The job on our server, and then on a bare one that writes chunks of the same sizes."""
    mine, heard = await _served(ours, steps, job)
    plan, its_steps = folder / "plan.json", folder / "bare.steps"
    plan.write_text(json.dumps({"sizes": heard.sizes, "step_ms": job.step_us / 1000}))
    flags = ("--plan", str(plan), "--steps", str(its_steps))
    async with server_process(flags, command=BARE) as bare:
        its, _ = await _served(bare.place, StepReader(its_steps), job)
    return Compared(
        tokens=job.tokens,
        chunks=len(heard.sizes),
        head=Pair.of(mine.head_ms, its.head_ms),
        first_token=Pair.of(mine.first_token_ms, its.first_token_ms),
        per_token=Pair.of(mine.per_token_ms, its.per_token_ms),
        delivery=Spread.of(mine.delivery_ms) if mine.delivery_ms else None,
        bare_delivery=Spread.of(its.delivery_ms) if its.delivery_ms else None,
    )


async def _served(place: Place, steps: StepReader, job: Job) -> tuple[Samples, Heard]:
    """All requests of the job on one connection; the first one, which warms up, is not counted."""
    samples = Samples()
    listener = await Listener.connect(place)
    heard = await listener.hear(job.bodies[0])
    steps.new()
    for body in job.bodies:
        heard = await listener.hear(body)
        own = steps.new()
        samples.head_ms.append(heard.head_ms())
        samples.first_token_ms.append(heard.first_token_ms(own))
        samples.per_token_ms.append(heard.per_token_ms(own, job.tokens))
        if job.step_us:
            samples.delivery_ms += heard.delivery_ms(own)
    await listener.close()
    return samples, heard


def short_job(tokens: int, step_us: int, repeat: int) -> Job:
    """Answers to one short question."""
    return Job([chat("Tell me a story.", tokens, seed=step_us)] * repeat, tokens, step_us)


def long_job(history_kb: int, tokens: int, step_us: int, repeat: int) -> Job:
    """Warm turns: a long history that is always the same, and a new question about it."""
    lines = (history_kb << 10) // len(LINE.format(number=1000)) // HISTORY_MESSAGES
    history = [
        {
            "role": ("user", "assistant")[turn % 2],
            "content": "".join(LINE.format(number=turn * 1000 + n) for n in range(lines)),
        }
        for turn in range(HISTORY_MESSAGES)
    ]
    questions = [f"What does line {number} do?" for number in range(repeat)]
    bodies = [chat(text, tokens, history=history, seed=step_us) for text in questions]
    return Job(bodies, tokens, step_us)
