"""A server that does not fit into memory does not start."""

import pytest

from flashrt.cli import main

TOO_MUCH_MB = "16000000"


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        ((), "no window fits on cpu"),
        (("--max-seq", "4096"), "--max-seq 4096 does not fit on cpu"),
    ],
)
def test_the_start_is_refused_before_weights_are_read(flags, words, capsys):
    """One line with what it takes and what is free, and status 2."""
    asked = ("serve", "--device", "cpu", "--port", "0", "--capsule-budget-mb", TOO_MUCH_MB)

    assert main([*asked, *flags]) == 2

    said = capsys.readouterr()
    assert said.err.startswith(f"flashrt: {words}: it takes 16")
    assert "16777.22 for saved states" in said.err
    assert "GB free" in said.err
    assert said.err.count("\n") == 1
    assert said.out == ""
