"""What a command is asked for."""

import pytest

from flashrt.bench.engine.options import Options
from flashrt.errors import CannotServe

ASKED = {
    "model": None,
    "shape": None,
    "device": "cpu",
    "dtype": "auto",
    "context": [1, 2],
    "repeat": 1,
    "chunk_tokens": 64,
    "seed": 0,
}


def test_the_default_counts_where_nothing_is_named():
    """And only there; lists become values."""
    named = Options.load({**ASKED, "shape": "tiny"}, {"shape": "27b"})
    default = Options.load(ASKED, {"model": "folder"})

    assert (named.name, named.context) == ("tiny with random weights", (1, 2))
    assert (default.name, default.shape) == ("folder", None)


def test_a_model_and_a_shape_contradict_each_other():
    """Which of them is meant?"""
    with pytest.raises(CannotServe, match="--model and --shape contradict each other"):
        Options.load({**ASKED, "model": "a", "shape": "tiny"}, {})


def test_a_format_is_of_random_weights():
    """A checkpoint has its own; the name of what is measured tells it."""
    named = Options.load({**ASKED, "shape": "tiny", "number_format": "fp8"}, {})
    assert named.name == "tiny with random weights in fp8"
    with pytest.raises(CannotServe, match="--format is of random weights; a --model has its own"):
        Options.load({**ASKED, "model": "a", "number_format": "fp8"}, {})


def test_a_file_that_cannot_be_written_is_said_at_once(tmp_path):
    """Not behind minutes of measuring."""
    with pytest.raises(CannotServe, match=f"--json: cannot write {tmp_path}: Is a directory"):
        Options.load({**ASKED, "shape": "tiny", "json": tmp_path}, {})
