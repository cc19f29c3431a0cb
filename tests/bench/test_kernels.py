"""The command that times the kernels."""

import pytest
import torch

from flashrt.bench.kernels import main


@pytest.mark.skipif(torch.cuda.is_available(), reason="says what happens without a device")
@pytest.mark.parametrize("form", [[], ["--format", "int4"]], ids=str)
@pytest.mark.parametrize("shape", ["tiny", "tiny-moe"])
def test_without_a_device_it_says_so(
    shape: str, form: list[str], capsys: pytest.CaptureFixture[str]
):
    """No traceback: what is missing, and exit code 2."""
    assert main(["--shape", shape, *form]) == 2
    assert "GPU" in (said := capsys.readouterr().err) or "Triton" in said


@pytest.mark.parametrize("arguments", [["--rows", "65"], ["--rows", "0"], ["--context", "0"]])
def test_numbers_that_cannot_be_are_refused(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
):
    """Before anything is measured, naming the flag."""
    assert main(arguments) == 2
    assert arguments[0] in capsys.readouterr().err


def test_help_says_what_it_measures(capsys: pytest.CaptureFixture[str]):
    """And what it takes."""
    with pytest.raises(SystemExit):
        main(["--help"])
    said = capsys.readouterr().out
    assert "random weights" in said
    assert "GPU" in said
