"""The measuring command for warm prompts."""

from flashrt.bench import render


def test_it_renders_a_history_of_about_the_asked_length_and_prints_both_halves(capsys):
    """What is printed was measured on a prompt of the size that was asked for."""
    render.main(["--tokens", "3000", "--turns", "10", "--repeat", "2"])

    line = capsys.readouterr().out
    tokens = int(line.split()[0])
    assert 1500 <= tokens <= 6000
    assert "in 10 messages" in line
    assert "template" in line
    assert "segments and ids" in line
