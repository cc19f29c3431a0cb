"""On the CPU a piece is what is written."""

import torch

from flashrt.demo.training.fused import fused


def test_on_the_cpu_nothing_is_compiled():
    """The function itself is called, under its own name, and gradients go through it."""
    calls = []

    @fused
    def doubled(x, y):
        calls.append(torch.compiler.is_compiling())
        return 2 * x + y

    x = torch.ones(3, requires_grad=True)
    doubled(x, 1.0).sum().backward()
    assert calls == [False]
    assert doubled.__name__ == "doubled"
    assert x.grad.tolist() == [2.0, 2.0, 2.0]
