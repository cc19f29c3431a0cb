"""A run that is cut into pieces ends where one run ends."""

import torch

from flashrt.demo.training.train import Trainer, losses, parse

ARGS = (
    "--size micro --total-steps 4 --workers 0 --batch-tokens 512 --micro-tokens 256 --longest 256"
)


def _run(out, *more):
    Trainer(parse([*ARGS.split(), "--out", str(out), *more])).run()
    return torch.load(out / "state.pt", weights_only=True)


def test_a_resumed_run_equals_an_uninterrupted_one(tmp_path):
    """Weights and optimizer are the same bits after the same steps."""
    whole = _run(tmp_path / "whole")
    assert _run(tmp_path / "parts", "--stop-at", "2")["step"] == 2
    parts = _run(tmp_path / "parts", "--resume")
    assert parts["step"] == whole["step"] == 4
    for name, tensor in whole["net"].items():
        assert torch.equal(tensor, parts["net"][name]), name
    for a, b in zip(whole["optimizer"]["momenta"], parts["optimizer"]["momenta"], strict=True):
        assert torch.equal(a, b)


def test_a_run_goes_on_from_its_light_file_alone(tmp_path):
    """Where only the weights were kept, the steps go on with rates that warm up anew."""
    _run(tmp_path, "--stop-at", "2")
    (tmp_path / "state.pt").unlink()
    went_on = _run(tmp_path, "--resume")
    assert (went_on["step"], went_on["empty_at"]) == (4, 2)
    assert went_on["optimizer"]["t"] == 2


def test_bfloat16_products_give_about_the_same_loss():
    """What a GPU computes under autocast is what float32 computes, but for rounding."""
    trainer = Trainer(parse([*ARGS.split(), "--out", "unused"]))
    ids = torch.randint(0, 8000, (2, 256), generator=torch.Generator().manual_seed(0))
    weights = torch.ones(2, 256)
    exact, _ = losses(trainer.body, ids, weights, 3)
    with torch.autocast("cpu", torch.bfloat16):
        rounded, _ = losses(trainer.body, ids, weights, 3)
    assert abs(rounded.item() / exact.item() - 1) < 2e-3
