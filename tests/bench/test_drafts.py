"""The measuring command for drafts."""

import pytest

from flashrt.bench import drafts


def test_it_prints_every_way_of_drafting_and_that_the_ids_are_the_same(capsys):
    """In few tokens of the demo checkpoint: an oracle gains with its depth, a quote is found."""
    drafts.main(["--tokens", "24", "--prompt", "40"])

    lines = capsys.readouterr().out.splitlines()
    per_step = {
        line[:20].strip(): float(line.split("tokens a step")[0].split()[-1])
        for line in lines
        if "tokens a step" in line
    }
    assert per_step["off"] == per_step["quoting, off"] == 1.0
    assert per_step["oracle of 8"] > per_step["oracle of 3"] > per_step["oracle of 1"] > 1.8
    assert per_step["quoting, adaptive"] > 2
    assert lines[-1] == "the same ids every time"


def test_other_ids_with_drafts_fail_the_command(monkeypatch):
    """A figure for another text would say nothing."""
    real = drafts._timed

    def broken(engine, start, name, count, params, limits=None):
        seed = 1 if params.draft_tokens == 0 else 2
        return real(engine, start, name, count, drafts.SamplingParams(1.0, seed=seed), limits)

    monkeypatch.setattr(drafts, "_timed", broken)
    with pytest.raises(SystemExit, match="other ids"):
        drafts.main(["--tokens", "20", "--prompt", "20"])
