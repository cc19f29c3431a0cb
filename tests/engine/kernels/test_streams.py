"""Which layers go as one launch."""

import importlib.metadata

import pytest
import torch

from flashrt.bench.engine.random_weights import random_model
from flashrt.engine.buffers import Buffers
from flashrt.engine.kernels.streams import NoStreams, can_stream, first_of, out_of, streams_of
from flashrt.engine.model import Model
from flashrt.engine.shapes import TINY

CPU = torch.device("cpu")
GPU = torch.device("cuda")


@pytest.fixture(scope="module")
def model() -> Model:
    weights = random_model(TINY, CPU, torch.float32).weights
    return Model(TINY, weights, Buffers.allocate(TINY, 64, CPU, torch.float32))


@pytest.mark.parametrize(
    ("capability", "triton", "wanted"),
    [
        ((9, 0), "3.6.0", True),
        ((9, 0), "3.6.1+git", True),
        ((9, 0), "3.7.0", False),
        ((9, 0), "3.60.0", False),
        ((8, 9), "3.6.0", False),
        ((10, 0), "3.6.0", False),
    ],
    ids=str,
)
def test_the_kernel_runs_where_it_was_written_for(monkeypatch, capability, triton, wanted):
    """A Hopper, and the Triton whose language it is in."""
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: capability)
    monkeypatch.setattr(importlib.metadata, "version", lambda name: triton)

    assert can_stream(GPU) is wanted


def test_nothing_streams_on_a_cpu(model: Model):
    """Nor asks for a Triton that may not be there."""
    found = streams_of(model.layers, CPU)

    assert isinstance(found, NoStreams)
    found.start()
    assert not any(found.take(number) for number in range(len(model.layers)))
    with pytest.raises(LookupError, match="layer 2"):
        found.run(2, torch.zeros(1), torch.zeros(1))


def test_a_mixers_first_and_last_matrix_have_its_rows(model: Model):
    """Of either kind: from the residual's columns, and back to them."""
    for layer in model.layers:
        assert first_of(layer.mixer).shape[1] == TINY.hidden_size
        assert len(out_of(layer.mixer)) == TINY.hidden_size
