"""`flashrt inspect` as it is typed."""

import json
import subprocess
import sys

import pytest
import torch
from safetensors.torch import load_file

from flashrt.cli import main
from flashrt.demo import DEMO_PATH
from flashrt.engine.kvcache import KV_DTYPES
from tests.engine.checkpoints import WEIGHTS, saved
from tests.engine.quantized import written


def run(capsys: pytest.CaptureFixture[str], *words: object) -> tuple[int, str, str]:
    """The exit status, and what was said."""
    status = main(["inspect", *(str(word) for word in words)])
    shown = capsys.readouterr()
    return status, shown.out, shown.err


def test_a_checkpoint_is_told_as_tables_and_as_json(capsys):
    """The same numbers; without a model it is the bundled one."""
    status, text, _ = run(capsys, "--memory-gb", 24, "--max-seq", 1000, 2000)
    _, again, _ = run(capsys, DEMO_PATH, "--memory-gb", 24, "--max-seq", 1000, 2000)
    _, raw, _ = run(capsys, "--memory-gb", 24, "--max-seq", 1000, 2000, "--json")
    told = json.loads(raw)
    assert status == 0
    assert text == again
    assert told["memory"]["device"] == "cuda"
    assert told["memory"]["available_bytes"] == 24 * 10**9
    assert [window["max_seq"] for window in told["memory"]["windows"]] == [1000, 2000]
    assert told["size_bytes"] == sum(share["size_bytes"] for share in told["shares"])
    for fact in (told["model"], told["template"], told["tokenizer"], "24.00 GB", "2000"):
        assert fact in text


def test_keys_and_values_may_be_counted_in_8_bits(capsys):
    """With the words that serving takes, as JSON and in the line over the table."""
    for word in KV_DTYPES:
        asked = ("--memory-gb", 24, "--max-seq", 2000, "--kv-cache-dtype", word)
        status, raw, _ = run(capsys, *asked, "--json")
        _, text, _ = run(capsys, *asked)
        kv_dtype = json.loads(raw)["memory"]["kv_dtype"]
        assert status == 0
        assert kv_dtype == str(KV_DTYPES[word] or torch.bfloat16).removeprefix("torch.")
        assert (f"keys and values in {kv_dtype}" in text) == (word == "fp8")
    status, _, err = run(capsys, "--kv-cache-dtype", "int8")
    assert status == 2
    assert "'int8'" in err


def test_without_a_number_the_memory_is_this_machines(capsys):
    """Of the device that serving would choose."""
    _, raw, _ = run(capsys, "--device", "cpu", "--json")
    memory = json.loads(raw)["memory"]
    assert (memory["device"], memory["dtype"]) == ("cpu", "float32")
    assert memory["available_bytes"] > 1 << 28


def test_what_serving_would_refuse_is_refused(tmp_path, capsys):
    """By tensor, in one line, status 2: a shape, and half a quantized matrix."""
    saved(tmp_path)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (tmp_path / name).write_text((DEMO_PATH / name).read_text())
    tensors = load_file(tmp_path / WEIGHTS)
    for odd, words in (
        ({"model.norm.weight": torch.zeros(7)}, "tensor model.norm.weight in"),
        ({"model.layers.0.mlp.up_proj.weight_scale": torch.zeros(1)}, "up_proj.weight_scale in"),
        ({"lm_head.weight": torch.zeros(96, 32).to(torch.float8_e4m3fn)}, "lm_head.weight_scale"),
    ):
        written(tmp_path, {**tensors, **odd})
        capsys.readouterr()
        status, out, err = run(capsys, tmp_path)
        assert (status, out) == (2, "")
        assert err.startswith("flashrt: ")
        assert words in err
        assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["--memory-gb", "0"], "'0' is no number of GB up to 100000"),
        (["--memory-gb", "nan"], "'nan' is no number of GB"),
        (["--max-seq", "1"], "'1' is no whole number from 2 to"),
        (["--max-seq", "99999"], "--max-seq 99999: the model's window is 40960 tokens"),
        (["/nowhere/at all"], "is neither a directory nor a repository id"),
    ],
)
def test_what_makes_no_sense_is_one_line(argv, words, capsys):
    """Naming the flag and its limits."""
    status, out, err = run(capsys, *argv)
    assert (status, out) == (2, "")
    assert words in err


def test_help_does_not_wait_for_torch():
    """It takes seconds to import."""
    words = [sys.executable, "-X", "importtime", "-m", "flashrt", "inspect", "--help"]
    ran = subprocess.run(words, capture_output=True, text=True, check=True)
    assert "--memory-gb" in ran.stdout
    assert " torch\n" not in ran.stderr
