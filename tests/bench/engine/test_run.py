"""Whole commands."""

import json

import pytest

from flashrt.cli import main

TINY = ("--shape", "tiny", "--device", "cpu", "--repeat", "1")


@pytest.mark.parametrize(
    ("argv", "figures"),
    [
        (("decode", "--context", "64", "--rows", "4"), 3),
        pytest.param(("restore", "--context", "64"), 6, marks=pytest.mark.slow),
        pytest.param(("restore", "--context", "64", "--from", "host"), 3, marks=pytest.mark.slow),
        pytest.param(("parking", "--context", "64"), 3, marks=pytest.mark.slow),
        pytest.param(
            ("prefill", "--context", "64", "--append", "64", "--offsets", "2"),
            3,
            marks=pytest.mark.slow,
        ),
        pytest.param(("peers", "--context", "64"), 4, marks=pytest.mark.slow),
    ],
    ids=lambda value: value[0] if isinstance(value, tuple) else "",
)
def test_a_command_prints_a_table_and_writes_it(argv, figures, tmp_path, capsys):
    """The same figures in both, each with a bound, and what they were measured on."""
    file = tmp_path / "figures.json"

    assert main(["bench", *argv, *TINY, "--json", str(file)]) == 0

    said, written = capsys.readouterr().out, json.loads(file.read_text())
    assert said.startswith(f"{argv[0]} of tiny with random weights\n")
    assert len(written["figures"]) == figures
    for figure in written["figures"]:
        assert f"{figure['work']:<36}{figure['context']:>9}{figure['ms']:>11.3f}" in said
        assert figure["bound_ms"] > 0
    assert written["machine"]["flashrt"]
    assert written["rates_per_s"]["read_bytes"] > 0
    assert written["notes"] == said.splitlines()[-len(written["notes"]) :]
