"""The bundled checkpoint is what its maker makes, and loads like any other."""

import json

import torch
from tokenizers import AddedToken
from transformers import Qwen3_5ForCausalLM

from flashrt.demo import DEMO_PATH
from flashrt.demo.make import generation_config, model_config, write_demo
from flashrt.demo.template import CHAT_TEMPLATE
from flashrt.demo.tokenizer import build_tokenizer
from flashrt.engine.assets import find_model, model_name, read_generation_defaults, read_stop_ids
from flashrt.engine.checkpoint import load_checkpoint
from tests.demo.bundled import RANKS, ranks, read, rendered, tokenizer

USER = {"role": "user", "content": "Hi"}


def test_the_small_files_are_what_the_maker_writes():
    """Nobody edited them by hand."""
    vocabulary = tokenizer().get_vocab()
    turn_end, stop = vocabulary["<|im_end|>"], vocabulary["<|endoftext|>"]
    assert read("config.json") == model_config(len(vocabulary), stop)
    assert read("generation_config.json") == generation_config(turn_end, stop)
    assert (DEMO_PATH / "chat_template.jinja").read_text(encoding="utf-8") == CHAT_TEMPLATE


def test_making_it_again_gives_the_same_files(tmp_path):
    """From the vocabulary in the folder itself."""
    raw = read("tokenizer.json")
    added = [
        AddedToken(token["content"], special=token["special"], normalized=False)
        for token in raw["added_tokens"]
    ]
    rule = raw["pre_tokenizer"]["pretokenizers"][0]["pattern"]["Regex"]
    for name in ("a", "b"):
        write_demo(tmp_path / name, build_tokenizer(ranks(), rule, added), seed=0)
    for file in DEMO_PATH.iterdir():
        first = (tmp_path / "a" / file.name).read_bytes()
        assert (tmp_path / "b" / file.name).read_bytes() == first
        if file.name != "tokenizer.json":
            assert first == file.read_bytes()
    again = json.loads((tmp_path / "a" / "tokenizer.json").read_text(encoding="utf-8"))
    assert again["model"]["merges"] == raw["model"]["merges"]
    assert again["added_tokens"] == raw["added_tokens"]


def test_it_is_small_and_its_window_is_large():
    """It travels in the package."""
    assert sum(file.stat().st_size for file in DEMO_PATH.iterdir()) < 8_000_000
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
    assert read_generation_defaults(DEMO_PATH).top_k == 20


def test_transformers_loads_every_tensor_and_its_text_varies():
    """No missing and no unexpected tensor; greedy text does not get stuck at once."""
    model, report = Qwen3_5ForCausalLM.from_pretrained(
        DEMO_PATH, dtype=torch.float32, output_loading_info=True
    )
    assert not any(report.values())
    ids = torch.tensor([tokenizer().encode(rendered(USER, ask=True)).ids])
    with torch.no_grad():
        text = model.generate(ids, max_new_tokens=24, do_sample=False)[0, ids.shape[1] :]
    assert len(set(text.tolist())) > 12
