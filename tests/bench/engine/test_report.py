"""Tables and JSON."""

import json

import torch

from flashrt.bench.engine.report import HEAD, Figure, begun
from tests.bench.engine.subjects import RATES, wishes

FIGURE = Figure.of("decode", 512, [3.0, 2.0, 7.0], 1.0, tokens_per_s=500.0)


def test_a_figure_is_the_median_beside_the_worst_and_the_bound():
    """And how many times the bound it is."""
    assert (FIGURE.ms, FIGURE.worst_ms, FIGURE.count) == (3.0, 7.0, 3)
    assert FIGURE.line().split() == [
        *("decode", "512", "3.000", "7.000", "1.000", "3.00"),
        *("tokens_per_s", "500"),
    ]


def test_columns_stand_under_their_heads():
    """Also where there is no bound."""
    end = HEAD.index("worst") + len("worst")

    assert FIGURE.line()[:end].endswith("7.000")
    assert Figure.of("decode", 512, [1.0]).line()[:end].endswith("1.000")


def test_the_file_has_all_that_was_printed(tmp_path, capsys):
    """Machine, rates, options, figures and notes."""
    report = begun("decode", wishes(), torch.device("cpu"), torch.float32, RATES)
    report.add(FIGURE)
    report.note("and so it was")
    report.write(tmp_path / "figures.json")

    read = json.loads((tmp_path / "figures.json").read_text())
    said = capsys.readouterr().out
    assert read["command"] == "decode"
    assert read["subject"] == "tiny with random weights"
    assert read["machine"]["torch"] in said
    assert read["rates_per_s"]["flops"] == 1e9
    assert read["options"]["context"] == [70]
    assert read["figures"][0]["more"] == {"tokens_per_s": 500.0}
    assert said.splitlines()[-2:] == [FIGURE.line(), "and so it was"]
