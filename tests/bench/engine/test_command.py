"""`flashrt bench` as it is typed."""

import subprocess
import sys

import pytest

from flashrt.bench.engine.command import MEASUREMENTS
from flashrt.cli import main, parser
from flashrt.engine.kvcache import KV_DTYPES


@pytest.mark.parametrize("name", MEASUREMENTS)
def test_help_says_what_is_measured(name, capsys):
    """With its amounts and their defaults."""
    with pytest.raises(SystemExit) as ended:
        main(["bench", name, "--help"])

    said = " ".join(capsys.readouterr().out.split())
    assert ended.value.code == 0
    assert MEASUREMENTS[name].text.replace("%", "") in said
    assert f"{MEASUREMENTS[name].repeat_text} [default {MEASUREMENTS[name].repeat}]" in said


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        ([], "the following arguments are required: MEASUREMENT"),
        (["encode"], "invalid choice: 'encode'"),
        (["decode", "--rows", "65"], "--rows: '65' is no whole number from 1 to 64"),
        (["decode", "--context", "0"], "--context: '0' is no whole number from 1 to"),
        (["decode", "--shape", "28b"], "--shape: invalid choice: '28b'"),
        (["prefill", "--offsets", "65"], "--offsets: '65' is no whole number from 1 to 64"),
        (["prefill", "--chunk-tokens", "100"], "--chunk-tokens: '100' is no multiple of 64"),
        (["decode", "--kv-cache-dtype", "fp4"], "--kv-cache-dtype: invalid choice: 'fp4'"),
        (["turn", "--kv-cache-dtype", "fp8"], "unrecognized arguments: --kv-cache-dtype"),
        (["restore", "--rows", "4"], "unrecognized arguments: --rows"),
        (["decode", "--model", "a", "--shape", "tiny"], "--model and --shape contradict"),
        (["decode", "--model", "/nowhere"], "'/nowhere' is neither a directory nor"),
    ],
)
def test_what_cannot_be_measured_is_one_line_and_status_2(argv, words, capsys):
    """No usage text, no traceback."""
    assert main(["bench", *argv]) == 2

    shown = capsys.readouterr()
    assert words in shown.err
    assert shown.err.count("\n") == 1
    assert shown.out == ""


@pytest.mark.parametrize("name", ["decode", "prefill", "restore"])
def test_the_dtypes_of_keys_and_values_are_those_of_serving(name):
    """Word for word."""
    for word in KV_DTYPES:
        typed = parser().parse_args(["bench", name, "--kv-cache-dtype", word])
        assert typed.kv_cache_dtype == word


def test_help_does_not_wait_for_torch():
    """It takes seconds to import."""
    code = "import sys; from flashrt.cli import parser; parser(); assert 'torch' not in sys.modules"

    subprocess.run([sys.executable, "-c", code], check=True)
