"""`flashrt bench turn`: a tool result is sent, and the next tool call is complete.

Over HTTP against a real server process on this machine, as an agent does it. Its engine's steps are
written down, so what else a turn takes is known: the server's own share is the time in which no
step ran. It has HTTP, rendering, tokenizing, the plan, the way to the client and back.
"""

import statistics
import tempfile
from collections.abc import Iterator
from pathlib import Path

import attrs
import torch
import trio

from flashrt.bench.engine.bounds import Bounds
from flashrt.bench.engine.conversation import (
    CALL_TOKENS_MAX,
    LINE,
    Answer,
    Conversation,
    read_answer,
)
from flashrt.bench.engine.machine import Clock
from flashrt.bench.engine.options import Options
from flashrt.bench.engine.rates import measured
from flashrt.bench.engine.report import Figure, Report, begun
from flashrt.bench.engine.subject import check_window, config_of, layout_of
from flashrt.bench.overhead.clocked import Span, StepReader, own_seconds
from flashrt.bench.overhead.heard import Heard, Listener
from flashrt.bench.soak.process import ServerProcess, server_process
from flashrt.bench.soak.wire import Fault
from flashrt.chat.tokenizer import Tokenizer
from flashrt.demo import DEMO_PATH
from flashrt.engine.assets import find_model
from flashrt.engine.kernels import head_copy_bytes
from flashrt.engine.placement import Placement
from flashrt.engine.tensor_plan import allocate_all
from flashrt.errors import CannotServe

SERVER = ("flashrt.bench.engine.serving",)
START_WITHIN_S = 1800
"""Weights are read, kernels compiled and graphs captured."""

FRAME_TOKENS = 1024
"""Room for the tool's description and the frame of a few messages."""


@attrs.frozen
class Turn:
    """One tool result and the call that followed, as the client saw it."""

    heard: Heard
    answer: Answer
    steps: tuple[Span, ...]
    """Of the engine, while it lasted."""

    @property
    def ms(self) -> float:
        """From the result sent to the call complete."""
        return (self.heard.at[-1] - self.heard.sent_at) * 1e3

    @property
    def engine_ms(self) -> float:
        """In which a step of the engine ran."""
        return own_seconds([*self.steps], self.heard.sent_at, self.heard.at[-1]) * 1e3

    @property
    def first_ms(self) -> float:
        """To the first piece of the call."""
        return (self.heard.first_token_at - self.heard.sent_at) * 1e3

    @property
    def first_engine_ms(self) -> float:
        """In which a step ran until then."""
        return own_seconds([*self.steps], self.heard.sent_at, self.heard.first_token_at) * 1e3

    @property
    def _later(self) -> tuple[Span, ...]:
        """Steps behind the first piece; those that save the turn come behind its end."""
        start, end = self.heard.first_token_at, self.heard.at[-1]
        return tuple(step for step in self.steps if start < step.end <= end)

    @property
    def later_ms(self) -> float:
        """From there to the end of the last step."""
        return (self._last_step_at - self.heard.first_token_at) * 1e3

    @property
    def later_engine_ms(self) -> float:
        """In which a step ran meanwhile."""
        start = self.heard.first_token_at
        return own_seconds([*self._later], start, self._last_step_at) * 1e3

    @property
    def later_tokens(self) -> float:
        """Tokens behind the first piece: before it stand those that say that it is a call."""
        record = self.answer.record
        return len(self._later) * self.answer.completion_tokens / record["decode_steps"]

    @property
    def end_ms(self) -> float:
        """From the end of the last step to the call complete: the server's alone."""
        return (self.heard.at[-1] - self._last_step_at) * 1e3

    @property
    def _last_step_at(self) -> float:
        return max(step.end for step in self._later)

    def bound_ms(self, bounds: Bounds) -> float:
        """The new tokens, then every step of one row."""
        record = self.answer.record
        cached, new = record["cached_tokens"], record["new_prefill_tokens"]
        more = record["decode_steps"] - 1
        return bounds.prompt_ms(max(1, new), cached) + more * bounds.step_ms(1, cached + new)


def report(options: Options) -> Report:
    """Print and return it. Raises CannotServe; NoCall where the model does not call."""
    place = Placement.of(options.device, options.dtype)
    config = config_of(options)
    check_window(config, _window(options))
    rates = measured(Clock(place.device), place.dtype)
    if place.device.type == "cuda":
        torch.cuda.empty_cache()  # the server needs the memory
    found = begun("turn", options, place.device, place.dtype, rates)
    layout = layout_of(options)
    weights = allocate_all(config, "meta", place.dtype, layout).weights
    copied = head_copy_bytes(config, weights, place.device)
    bounds = Bounds(config, place.dtype, rates, layout, head_copy_bytes=copied)
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "log"
        try:
            trio.run(_measure, options, bounds, Path(folder) / "steps", log, found)
        except Fault as fault:
            said = log.read_text(errors="replace").strip().splitlines()
            raise CannotServe(f"{fault}; its last line was {said[-1:]}") from fault
    return found


def _window(options: Options) -> int:
    """Tokens of the longest conversation."""
    turns = options.repeat + 2
    return max(options.context) + FRAME_TOKENS + turns * (options.tail + CALL_TOKENS_MAX)


async def _measure(options: Options, bounds: Bounds, steps: Path, log: Path, found: Report) -> None:
    """All contexts on one server, one conversation each."""
    flags = _flags(options, steps)
    async with server_process(
        flags, log_file=log, command=SERVER, start_within_s=START_WITHIN_S
    ) as server:
        captured = 0
        for context in options.context:
            turns = await _turns(server, StepReader(steps), options, context)
            captured += sum(turn.answer.record["graph_capture_count"] for turn in turns)
            for figure in _figures(turns[2:], bounds):
                found.add(figure)
        found.note(f"graphs captured in requests: {captured}")


def _flags(options: Options, steps: Path) -> tuple[str, ...]:
    subject = ("--model", options.model) if options.model else ("--shape", str(options.shape))
    return (
        *("--steps", str(steps), *subject, "--device", options.device, "--dtype", options.dtype),
        *("--max-seq", str(_window(options)), "--chunk-tokens", str(options.chunk_tokens)),
        *("--seed", str(options.seed)),
    )


async def _turns(
    server: ServerProcess, reader: StepReader, options: Options, context: int
) -> list[Turn]:
    """A conversation from its beginning; its first answer reads the whole history, and the second
    is the first warm one."""
    tokenizer = Tokenizer.load(find_model(options.model) if options.model else DEMO_PATH)
    line = len(tokenizer.encode(LINE.format(number=1000)))
    conversation = Conversation.begun(max(1, context // line))
    listener, turns = await Listener.connect(server.place), []
    for number in range(1, options.repeat + 3):
        reader.new()
        heard = await listener.hear(conversation.body())
        turns.append(Turn(heard, read_answer(bytes(heard.body)), tuple(reader.new())))
        conversation.goes_on(turns[-1].answer, number, max(1, options.tail // line))
    await listener.close()
    return turns


def _figures(turns: list[Turn], bounds: Bounds) -> Iterator[Figure]:
    """Of warm turns."""
    answers = [turn.answer for turn in turns]
    context = answers[-1].prompt_tokens
    new = statistics.median(answer.record["new_prefill_tokens"] for answer in answers)
    tokens = statistics.median(answer.completion_tokens for answer in answers)
    bound = statistics.median(turn.bound_ms(bounds) for turn in turns)
    yield Figure.of(
        "result sent to call complete",
        context,
        [turn.ms for turn in turns],
        bound,
        new=new,
        tokens=tokens,
    )
    for work, times in _shares(turns).items():
        yield Figure.of(work, context, times)


def _shares(turns: list[Turn]) -> dict[str, list[float]]:
    """Parts of turns, in milliseconds. `own`: the server's share of the part above."""
    return {
        "whole turn, the server's share": [turn.ms - turn.engine_ms for turn in turns],
        "result sent to first piece of call": [turn.first_ms for turn in turns],
        "first piece, the server's share": [turn.first_ms - turn.first_engine_ms for turn in turns],
        "of which rendering and tokenizing": [turn.answer.record["tokenize_ms"] for turn in turns],
        "of which queued": [turn.answer.record["queued_ms"] for turn in turns],
        "each further token": [turn.later_ms / turn.later_tokens for turn in turns],
        "further token, the server's share": [
            (turn.later_ms - turn.later_engine_ms) / turn.later_tokens for turn in turns
        ],
        "behind the last step": [turn.end_ms for turn in turns],
    }
