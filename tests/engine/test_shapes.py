"""Named shapes."""

import pytest
import torch

from flashrt.engine.headers import MTP_PREFIX
from flashrt.engine.shapes import SHAPES
from flashrt.engine.tensor_plan import Layout, allocate


@pytest.mark.parametrize(
    ("name", "text", "mtp"), [("27b", 26.896, 0.425), ("35b-a3b", 34.661, 0.845)]
)
def test_a_named_shape_has_the_published_number_of_weights(name, text, mtp):
    """In thousand millions, of the language model and of its MTP layer."""
    tensors = allocate(SHAPES[name], "meta", torch.bfloat16, Layout(mtp=True))[1]
    sizes = {key: tensor.numel() for key, tensor in tensors.items()}
    in_mtp = sum(size for key, size in sizes.items() if key.startswith(MTP_PREFIX))

    assert (sum(sizes.values()) - in_mtp) / 1e9 == pytest.approx(text, abs=1e-3)
    assert in_mtp / 1e9 == pytest.approx(mtp, abs=1e-3)


@pytest.mark.parametrize("config", SHAPES.values(), ids=SHAPES)
def test_groups_of_heads_are_equal(config):
    """What the reader of a checkpoint's config asks for."""
    assert config.num_heads % config.num_kv_heads == 0
    assert config.linear_value_heads % config.linear_key_heads == 0
