"""Inverses of unit lower triangles."""

import pytest
import torch

from tests.engine.kernels.compare import CUDA, distance, noise

from flashrt.engine.kernels import triangle  # isort: skip

pytestmark = pytest.mark.gpu
ONE = torch.eye(triangle.SIDE, device=CUDA, dtype=torch.float64)


@pytest.mark.parametrize("scale", [0.05, 0.3, 1.0])
def test_inverses_equal_the_reference(scale: float):
    """Of many at once, also of large entries."""
    A = (noise(5, 3, triangle.SIDE, triangle.SIDE) * scale).tril(-1)
    wanted = torch.linalg.inv(A.double() + ONE)

    triangle.invert(A)

    error = (A.double() - wanted).norm(dim=(-2, -1)) / wanted.norm(dim=(-2, -1))
    assert float(error.max()) < 1e-5


def test_all_ones_stay_exact():
    """Rows that repeat: the inverse has one -1 beside each 1, and its powers would be huge."""
    A = torch.ones(1, triangle.SIDE, triangle.SIDE, device=CUDA).tril(-1)

    triangle.invert(A)

    assert distance(A[0], ONE - torch.diag_embed(torch.ones(63, device=CUDA), -1)) < 1e-6
