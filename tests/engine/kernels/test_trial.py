"""Measuring on random weights."""

from typing import Any

import pytest

from flashrt.bench.engine.options import NUMBER_FORMATS
from flashrt.bench.engine.random_weights import random_model
from flashrt.engine.weights import ModelWeights
from tests.engine.kernels.compare import CUDA

from flashrt.engine.kernels import trial  # isort: skip

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize("shape", ["tiny", "tiny-moe"])
def test_a_report_has_every_part_of_every_step(shape: str, capsys: pytest.CaptureFixture[str]):
    """One figure per part, rows and context, each positive and above its bound."""
    report = trial.report(shape, rows=[1, 4], contexts=[512])

    assert report is not None
    assert len(report["figures"]) == 2 * 6
    assert all(figure["ms"] > figure["bound_ms"] for figure in report["figures"])
    assert "whole step" in capsys.readouterr().out


@pytest.mark.parametrize("shape", ["tiny", "tiny-moe"])
@pytest.mark.parametrize("number_format", NUMBER_FORMATS)
def test_packed_weights_are_measured_too(number_format: str, shape: str):
    """Against fewer bytes than plain ones have."""
    plain = trial.random_model(trial.SHAPES[shape], 128, CUDA)

    def packed(*where: Any) -> ModelWeights:
        return random_model(*where, number_format=number_format).weights

    model = trial.random_model(trial.SHAPES[shape], 128, CUDA, weights_of=packed)
    assert trial.weight_bytes(model) < trial.weight_bytes(plain)
    report = trial.report(shape, rows=[1], contexts=[512], weights_of=packed)
    assert report is not None
    assert all(figure["ms"] > figure["bound_ms"] for figure in report["figures"])


def test_weight_bytes_are_those_of_the_matrices():
    """What one step reads: counted by hand for the small shape."""
    model = trial.random_model(trial.SHAPES["tiny"], 128, CUDA)
    linear = (256 + 128 + 8) * 128 + 128 * 128
    full = 2 * 64 * (4 + 2) * 128 + 128 * 256
    mlp = 3 * 256 * 128

    assert trial.weight_bytes(model) == 2 * (6 * linear + 2 * full + 8 * mlp + 8256 * 128)


def test_weight_bytes_of_a_mixture_are_those_of_the_experts_that_are_read():
    """Two of eight by one row, all by many, beside the router and the shared one."""
    mixture = trial.random_model(trial.SHAPES["tiny-moe"], 128, CUDA)
    dense = trial.random_model(trial.SHAPES["tiny"], 128, CUDA)
    others = trial.weight_bytes(dense) - 2 * 8 * 3 * 256 * 128
    expert, router = 2 * 3 * 64 * 128, 4 * 9 * 128

    assert trial.weight_bytes(mixture) == others + 8 * (3 * expert + router)
    assert trial.weight_bytes(mixture, rows=64) == others + 8 * (9 * expert + router)
