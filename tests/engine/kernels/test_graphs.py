"""Captured graphs."""

import gc

import pytest
import torch

from tests.engine.kernels.compare import CUDA

from flashrt.engine.kernels.graphs import Graph, capturing  # isort: skip

pytestmark = pytest.mark.gpu


def test_a_replay_reads_what_lies_there_now():
    """Not what lay there when it was captured."""
    x, captures = torch.zeros(4, device=CUDA), Graph.captures
    with capturing() as pool:
        doubled, squared = (Graph.capture(body, pool) for body in (lambda: x * 2, lambda: x * x))

    x.fill_(3)

    assert doubled.replay().tolist() == [6] * 4
    assert squared.replay().tolist() == [9] * 4
    assert Graph.captures == captures + 2


def test_collection_goes_on_behind_captures():
    """Also where a capture fails."""
    seen = []
    with pytest.raises(ZeroDivisionError), capturing():
        seen.append(1 / (0 if not gc.isenabled() else 1))

    assert not seen
    assert gc.isenabled()
