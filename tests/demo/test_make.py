"""The bundled checkpoint is what its maker makes, and loads like any other."""

import json

import pytest
import torch
from tokenizers import AddedToken
from transformers import Qwen3_5ForCausalLM

from flashrt.demo import DEMO_PATH
from flashrt.demo.make import KINDS, SIZES, model_config, write_small_files
from flashrt.demo.tokenizer import build_tokenizer
from flashrt.engine.assets import find_model, model_name, read_generation_defaults, read_stop_ids
from flashrt.engine.checkpoint import load_checkpoint
from flashrt.engine.config import parse_config
from tests.demo.bundled import RANKS, ranks, read, rendered, tokenizer

USER = {"role": "user", "content": "Hi"}


def test_making_it_again_gives_the_same_files(tmp_path):
    """All but the weights; nobody edited them by hand. From the vocabulary in the folder itself."""
    raw = read("tokenizer.json")
    added = [
        AddedToken(token["content"], special=token["special"], normalized=False)
        for token in raw["added_tokens"]
    ]
    rule = raw["pre_tokenizer"]["pretokenizers"][0]["pattern"]["Regex"]
    made = build_tokenizer(ranks(), rule, added)
    config = model_config(made.get_vocab_size(), made.token_to_id("<|endoftext|>"))
    write_small_files(tmp_path, config, made)
    for file in tmp_path.iterdir():
        if file.name != "tokenizer.json":
            assert file.read_bytes() == (DEMO_PATH / file.name).read_bytes()
    again = json.loads((tmp_path / "tokenizer.json").read_text(encoding="utf-8"))
    assert again["model"]["merges"] == raw["model"]["merges"]
    assert again["added_tokens"] == raw["added_tokens"]


@pytest.mark.parametrize("size", SIZES)
def test_three_linear_layers_stand_before_each_of_attention(size):
    """And the engine accepts the shape."""
    config = parse_config(model_config(8225, 0, size))
    assert list(config.layer_types) == KINDS * (len(config.layer_types) // len(KINDS))


def test_it_is_small_and_its_window_is_large():
    """It travels in the package."""
    whole = [*DEMO_PATH.iterdir(), *(DEMO_PATH.parent / "training").rglob("*")]
    assert sum(file.stat().st_size for file in whole if file.is_file()) < 40_000_000
    assert read("config.json")["max_position_embeddings"] >= 32768


def test_it_loads_like_any_checkpoint():
    """Dense, tied, with padding rows and an MTP layer; nothing is left out."""
    assert find_model(str(DEMO_PATH)) == DEMO_PATH
    loaded = load_checkpoint(DEMO_PATH, device="cpu", dtype=torch.bfloat16, progress=False)
    assert loaded.model_name == model_name(DEMO_PATH) == "flashrt-demo"
    assert loaded.unused == ()
    assert loaded.weights.mtp is not None
    assert loaded.weights.lm_head is loaded.weights.embed
    assert loaded.config.mtp_layers == 1
    assert loaded.config.vocab_size > tokenizer().get_vocab_size()
    assert read_stop_ids(DEMO_PATH) == {RANKS, RANKS + 2}
    assert read_generation_defaults(DEMO_PATH).temperature == 0


def test_transformers_loads_every_tensor_and_it_answers():
    """No missing and no unexpected tensor; a greeting is answered in words, and the turn ends."""
    model, report = Qwen3_5ForCausalLM.from_pretrained(
        DEMO_PATH, dtype=torch.float32, output_loading_info=True
    )
    assert not any(report.values())
    prompt = rendered(USER, ask=True, enable_thinking=False)
    ids = torch.tensor([tokenizer().encode(prompt).ids])
    with torch.no_grad():
        said = model.generate(ids, max_new_tokens=24, do_sample=False)[0, ids.shape[1] :]
    assert tokenizer().decode(said.tolist()) == "Hello! How can I help you?"
    assert said[-1] == tokenizer().token_to_id("<|im_end|>")
