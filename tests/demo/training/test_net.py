"""The training network computes what the engine computes."""

import json

import torch

from flashrt.demo import DEMO_PATH
from flashrt.demo.make import model_config
from flashrt.demo.training.net import Net
from flashrt.demo.training.pack import pack
from flashrt.engine.config import parse_config
from flashrt.engine.hybrid import HybridEngine
from flashrt.engine.passes import BlockPass

T = 192


def _packed(folder):
    tokenizer = DEMO_PATH / "tokenizer.json"
    tokens = json.loads((DEMO_PATH / "config.json").read_text())["vocab_size"]
    config = model_config(tokens, 0, "micro")
    net = Net(parse_config(config), seed=3)
    with torch.no_grad():
        for p in net.parameters():
            p.copy_(p.bfloat16().float())  # what the file can hold
    pack(net.state_dict(), config, tokenizer, folder)
    return net, HybridEngine.load(folder, max_seq=512, progress=False)


def test_logits_and_drafts_are_the_engines(tmp_path):
    """For the same weights, in float32, trunk and MTP layer agree to 1e-3."""
    net, engine = _packed(tmp_path)
    ids = torch.randint(0, 8000, (T,), generator=torch.Generator().manual_seed(0))
    model = engine._live.model
    with torch.no_grad():
        hidden = net(ids[None])
        want = net.head(hidden[0])
        (drafted,) = net.drafts(hidden, ids[None], 1)
        got = model.block(ids.tolist(), 0)
        rows = engine._live.mtp.layer.forward(ids[1:], got[:-1], BlockPass(0, T - 1))
        heads = torch.cat([model.head(part) for part in got.split(64)])
    assert (heads - want).abs().max() < 1e-3
    assert (rows - drafted[0, :-1]).abs().max() < 1e-3
