"""The forward pass computes what the reference implementation of the architecture computes."""

import pytest
import torch

from flashrt.engine.hybrid import HybridEngine
from flashrt.engine.protocol import SamplingParams
from tests.engine.models import Shape, config_of, ids, reference, weights_of

SHAPES = {
    "untied": Shape(),
    "tied": Shape(tied=True),
    "one kv head": Shape(heads=4, kv_heads=1, key_heads=1, value_heads=4),
    "no sharing": Shape(heads=2, kv_heads=2, key_heads=4, value_heads=4, linear_dim=8),
    "odd heads": Shape(heads=3, kv_heads=1, key_heads=1, value_heads=3, vocab=67),
    "every second layer full": Shape(layers=4, interval=2),
    "wide heads": Shape(heads=8, kv_heads=2, head_dim=64, key_heads=2, value_heads=6),
}
CUTS = ((), (64, 128, 256), (37, 38, 64, 130, 131, 200, 300))
PROMPT, ANSWER = 321, 64


def logits_along(engine: HybridEngine, tokens: tuple[int, ...], cuts: tuple[int, ...]):
    """Logits after each piece, and the positions."""
    engine.reset()
    for position in engine.prefill(tokens, cuts):
        yield position, engine._live.logits()


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES.keys())
def test_float32_logits_and_greedy_ids_equal_the_reference(shape):
    """In one call and cut, then 64 greedy ids: logits within 2e-4 at each step, the same ids."""
    model = reference(shape)
    engine = HybridEngine(config_of(model), weights_of(model), max_seq=512, model_name="random")
    prompt = ids(PROMPT, shape.vocab)
    for cuts in CUTS:
        decoded: list[int] = []
        seen = list(logits_along(engine, prompt, cuts))
        for chunk in engine.decode(SamplingParams()):
            decoded += chunk.tokens
            seen.append((engine.position, engine._live.logits()))
            if len(decoded) == ANSWER:
                break
        with torch.no_grad():
            wanted = model(torch.tensor([[*prompt, *decoded]])).logits[0]
        for position, logits in seen:
            torch.testing.assert_close(logits, wanted[position - 1], atol=2e-4, rtol=0)
        assert decoded == wanted[PROMPT - 1 : -1].argmax(-1).tolist()


def test_bfloat16_is_as_close_to_the_truth_as_the_reference_is():
    """Against a float32 run of the same rounded weights, our error is at most the reference's."""
    model = reference(seed=3).bfloat16()
    for name, tensor in model.named_parameters():
        if name.endswith(("A_log", "dt_bias")):
            tensor.data = tensor.data.float()
    weights = weights_of(model, torch.bfloat16)
    engine = HybridEngine(config_of(model), weights, max_seq=512, model_name="random")
    prompt = ids(PROMPT)
    ours = dict(logits_along(engine, prompt, tuple(range(8, PROMPT, 8))))
    with torch.no_grad():
        theirs = model(torch.tensor([prompt])).logits[0].float()
        truth = model.float()(torch.tensor([prompt])).logits[0]
    at = [position - 1 for position in ours]
    our_error = (torch.stack(list(ours.values())) - truth[at]).square().mean().sqrt()
    their_error = (theirs[at] - truth[at]).square().mean().sqrt()
    assert 0 < our_error <= 1.2 * their_error
