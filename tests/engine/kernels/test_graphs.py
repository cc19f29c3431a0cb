"""Captured graphs."""

import gc
from collections.abc import Iterator

import pytest
import torch
from torch import Tensor

from tests.engine.kernels.compare import CUDA

from flashrt.engine.kernels.graphs import Graph, capturing, in_one  # isort: skip

pytestmark = pytest.mark.gpu


def test_a_replay_reads_what_lies_there_now():
    """Not what lay there when it was captured."""
    x, captures = torch.zeros(4, device=CUDA), Graph.captures
    with capturing() as pool:
        bodies = (lambda: x * 2, lambda: x * x)
        doubled, squared = (Graph.capture(in_one(body), pool) for body in bodies)

    x.fill_(3)

    assert doubled.replay().tolist() == [6] * 4
    assert squared.replay().tolist() == [9] * 4
    assert Graph.captures == captures + 2


def test_pieces_are_replayed_in_their_order():
    """What one leaves, the next one reads, whatever was captured into the same memory between."""
    x = torch.ones(1 << 16, device=CUDA)

    def body() -> Iterator[Tensor | None]:
        y = x + 1
        yield None
        z = y * 3
        yield None
        yield z - y

    with capturing() as pool:
        graph = Graph.capture(body, pool)
        other = Graph.capture(in_one(lambda: x * 100), pool)
    x.fill_(4)

    assert len(graph.pieces) == 3
    for _ in range(2):
        assert other.replay()[-1] == 400
        assert graph.replay()[-1] == 10


def test_collection_goes_on_behind_captures():
    """Also where a capture fails."""
    seen = []
    with pytest.raises(ZeroDivisionError), capturing():
        seen.append(1 / (0 if not gc.isenabled() else 1))

    assert not seen
    assert gc.isenabled()
