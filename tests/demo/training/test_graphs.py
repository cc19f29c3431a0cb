"""Recorded graphs compute what the network computes."""

import copy

import pytest
import torch

from flashrt.demo.training.graphs import Body
from flashrt.demo.training.train import Trainer, losses, parse

ARGS = "--size micro --total-steps 4 --workers 0 --batch-tokens 512 --longest 256 --out unused"


def _sample():
    ids = torch.randint(0, 8000, (2, 256), generator=torch.Generator().manual_seed(0))
    return ids, torch.ones(2, 256)


def test_on_a_cpu_the_body_is_the_network():
    """Hidden rows and drafts are what the network says, and nothing is recorded."""
    net = Trainer(parse(ARGS.split())).net
    ids, _ = _sample()
    hidden, drafts = Body(net)(ids, 2)
    assert torch.equal(hidden, net(ids))
    for got, wanted in zip(drafts, net.drafts(hidden, ids, 2), strict=True):
        assert torch.equal(got, wanted)


@pytest.mark.gpu
def test_gradients_through_graphs_are_those_of_the_network():
    """Twice, for two depths of drafts: each replay adds what one pass adds."""
    trainer = Trainer(parse(ARGS.split()))
    # Apart from the recorded one: a gradient's place may not be met on two streams.
    plain = copy.deepcopy(trainer.net)

    class Eager:
        """The network itself."""

        net = plain

        def __call__(self, ids, depth):
            hidden = plain(ids)
            return hidden, plain.drafts(hidden, ids, depth)

    ids, weights = (part.cuda() for part in _sample())
    for depth in (1, 3, 1):
        for net, body in ((plain, Eager()), (trainer.net, trainer.body)):
            net.zero_grad(set_to_none=False)
            with torch.autocast("cuda", torch.bfloat16):
                loss, _ = losses(body, ids, weights, depth)
            loss.backward()
        for one, other in zip(plain.parameters(), trainer.net.parameters(), strict=True):
            assert (one.grad - other.grad).norm() <= 0.03 * one.grad.norm() + 1e-6
