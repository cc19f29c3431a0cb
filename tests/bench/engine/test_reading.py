"""The kernel that only reads."""

import pytest
import torch

pytestmark = pytest.mark.gpu


def test_every_byte_is_read():
    """The sums are those of all tiles."""
    reading = pytest.importorskip("flashrt.bench.engine.reading")
    x = torch.randn(4 * reading.TILE, device="cuda").to(torch.bfloat16)

    sums = reading.read_all(x)

    assert torch.allclose(sums, x.float().view(4, -1).sum(1), atol=1e-2)
