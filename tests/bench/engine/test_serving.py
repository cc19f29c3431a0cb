"""The server that is measured; test_turn.py starts it."""

import pytest

from flashrt.bench.engine.serving import parser


def test_it_needs_a_file_for_steps_and_a_window():
    """Without them nothing could be measured."""
    with pytest.raises(SystemExit):
        parser().parse_args(["--shape", "tiny"])

    asked = parser().parse_args(["--shape", "tiny", "--steps", "f", "--max-seq", "100"])

    assert (asked.shape, asked.model, asked.max_seq) == ("tiny", None, 100)
