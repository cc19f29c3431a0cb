"""A graph that is captured while somebody waits is seen from outside."""

from collections.abc import Iterator

import pytest

from flashrt.engine.fake import FakeEngine
from flashrt.engine.protocol import Constraint, DecodeChunk, SamplingParams
from tests.whole.server import VOICE, running_server

AT_START = 12


class Capturing(FakeEngine):
    """Has graphs from its start, and captures one more in each step whose number is in `late`."""

    late: frozenset[int] = frozenset()

    def __init__(self) -> None:
        super().__init__(vocab_size=VOICE.tokenizer.vocab_size, max_seq=4096)
        self.graph_capture_count = AT_START
        self.steps = 0

    def _prefill(self, tokens: tuple[int, ...], cuts: tuple[int, ...]) -> Iterator[int]:
        for position in super()._prefill(tokens, cuts):
            self._step()
            yield position

    def _decode(
        self, params: SamplingParams, constraint: Constraint | None
    ) -> Iterator[DecodeChunk]:
        for chunk in super()._decode(params, constraint):
            self._step()
            yield chunk

    def _step(self) -> None:
        self.graph_capture_count += self.steps in self.late
        self.steps += 1


@pytest.mark.parametrize("late", [set(), {0}, {2}, {0, 1, 3}], ids=str)
async def test_captures_are_in_record_health_and_metrics(late):
    """Those of a prompt's and of an answer's steps, in the request that waited for them; those of
    the start are in nobody's."""
    engine = Capturing()
    engine.late = frozenset(late)
    async with running_server(engine) as server:
        waited = await server.chat("hello")
        after = await server.chat("hello again")
        health = (await server.http.get("/health")).json()
        metrics = (await server.http.get("/metrics")).text

    assert waited["flashrt"]["graph_capture_count"] == len(late)
    assert after["flashrt"]["graph_capture_count"] == 0
    assert health["totals"]["graph_capture_count"] == len(late)
    assert f"flashrt_graph_captures_total {float(len(late))}" in metrics.splitlines()
