"""The measuring command for overhead."""

import json

import pytest

from flashrt.bench.overhead.run import main

TINY = (
    *("--tokens", "20", "--paced-tokens", "4", "--step-ms", "1", "--repeat", "2"),
    *("--history-kb", "4", "--probes", "5", "--stopped-tokens", "50"),
)
SPREAD = {"count", "p50_ms", "p99_ms", "max_ms"}
PAIR = {"ours_ms", "other_ms", "ratio", "extra_ms"}


@pytest.mark.slow
def test_the_command_prints_all_figures_and_writes_them(tmp_path, capsys):
    """With servers of its own; every goal is said to be met or missed."""
    file = tmp_path / "figures.json"
    assert main([*TINY, "--json", str(file)]) == 0
    said, found = capsys.readouterr().out, json.loads(file.read_text())
    assert found["cores"] >= 1
    assert list(found["jobs"]) == ["flat out", "steps of 1 ms", "warm turn of 4 kB"]
    for job in found["jobs"].values():
        for name in ("request_to_first_byte", "request_to_first_token", "per_token"):
            assert set(job[name]) == PAIR
    for state in ("quiet", "streams", "bodies"):
        assert set(found["health"][state]) == SPREAD
    assert found["health"]["bodies_posted"] >= 1
    assert set(found["first_token_behind_a_stopped_reader"]) == PAIR
    assert len(found["goals"]) == said.count("met   ") + said.count("MISSED") == 3


def test_a_file_that_cannot_be_written_is_said_before_anything_is_measured(tmp_path, capsys):
    """One line names the flag and the file."""
    with pytest.raises(SystemExit):
        main(["--json", str(tmp_path)])
    assert f"--json: cannot write {tmp_path}: Is a directory" in capsys.readouterr().err
