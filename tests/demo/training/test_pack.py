"""A packed folder is small enough and whole."""

import json

import pytest
import torch
from safetensors.torch import load_file

from flashrt.demo import DEMO_PATH
from flashrt.demo.make import model_config
from flashrt.demo.training import pack as module
from flashrt.demo.training.net import Net
from flashrt.demo.training.rendering import load_tokenizer
from flashrt.engine.assets import read_generation_defaults, read_stop_ids
from flashrt.engine.config import parse_config

TOKENIZER = DEMO_PATH / "tokenizer.json"
TOKENS = json.loads((DEMO_PATH / "config.json").read_text())["vocab_size"]
STOP = load_tokenizer(TOKENIZER).token_to_id("<|endoftext|>")


def test_the_demo_fits_the_repository(tmp_path):
    """At most 18 million parameters and 40 MB, with 32,768 positions or more."""
    config = model_config(TOKENS, 0)
    net = Net(parse_config(config))
    assert sum(p.numel() for p in net.parameters()) <= 18_000_000
    assert module.pack(net.state_dict(), config, TOKENIZER, tmp_path) < 40_000_000
    assert config["max_position_embeddings"] >= 32_768


def test_a_packed_folder_answers_greedily_and_knows_its_stops(tmp_path):
    """Defaults and stop ids are read as the server reads them."""
    config = model_config(TOKENS, STOP, "micro")
    module.pack(Net(parse_config(config)).state_dict(), config, TOKENIZER, tmp_path)
    assert read_generation_defaults(tmp_path).temperature == 0
    assert len(read_stop_ids(tmp_path)) == 2


def test_what_is_too_large_is_refused(tmp_path, monkeypatch):
    """With both numbers in the message."""
    monkeypatch.setattr(module, "TOTAL_MAX", 1000)
    with pytest.raises(SystemExit, match="1000 are allowed"):
        module.pack({"x": torch.zeros(4, 4)}, {}, TOKENIZER, tmp_path)


def test_several_runs_are_packed_as_their_mean(tmp_path):
    """Every weight is half of the one and half of the other, as far as bfloat16 can say it."""
    config = model_config(TOKENS, STOP, "micro")
    nets = [Net(parse_config(config), seed).state_dict() for seed in (0, 1)]
    for name, net in zip("ab", nets, strict=True):
        (tmp_path / name).mkdir()
        torch.save({"net": net, "config": config, "step": 1}, tmp_path / name / "light.pt")
    module.main([str(tmp_path / name) for name in ("a", "b", "out")])
    packed = load_file(tmp_path / "out" / "model.safetensors")
    for name, tensor in packed.items():
        half = (nets[0][name] + nets[1][name]) / 2
        assert torch.equal(tensor, half.to(tensor.dtype)), name
