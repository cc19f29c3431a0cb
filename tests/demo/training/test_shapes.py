"""Both sizes are of the family."""

import pytest

from flashrt.demo.training.shapes import SIZES, shape_config
from flashrt.engine.config import parse_config


@pytest.mark.parametrize("size", SIZES)
def test_three_linear_layers_stand_before_each_of_attention(size):
    """And the engine accepts the shape."""
    config = parse_config(shape_config(size, 8225, 0))
    kinds = ["linear_attention"] * 3 + ["full_attention"]
    assert list(config.layer_types) == kinds * (len(config.layer_types) // 4)
