"""What products of few rows share."""

import pytest
import torch

from tests.engine.kernels.compare import CUDA, noise

from flashrt.engine.kernels import linear, plain  # isort: skip
from flashrt.engine.kernels.tiles import tile_for  # isort: skip

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize("n", [96, 200])
@pytest.mark.parametrize("rows", [1, 20, 64])
def test_a_product_fills_some_columns_of_wider_rows(rows: int, n: int):
    """With the bits of rows of their own, and no other column is touched."""
    x, w = noise(rows, 512, dtype=torch.bfloat16), noise(n, 512, seed=1, dtype=torch.bfloat16)
    wide = torch.full((rows, n + 90), 7.0, dtype=torch.bfloat16, device=CUDA)

    plain.fill(x, w, wide[:, 40 : 40 + n], tile_for(n, 512))

    assert torch.equal(wide[:, 40 : 40 + n], linear.rows_linear(x, w))
    assert torch.all(wide[:, :40] == 7)
    assert torch.all(wide[:, 40 + n :] == 7)


def test_weights_that_lie_apart_are_refused():
    """They would be read from the wrong places."""
    w = noise(96, 256, dtype=torch.bfloat16)[:, :128]
    with pytest.raises(ValueError, match="strides"):
        linear.rows_linear(noise(2, 128, dtype=torch.bfloat16), w)
