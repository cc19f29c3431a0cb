"""Shapes as config.json."""

import pytest

from flashrt.bench.engine.hf_form import text_config, whole_config
from flashrt.engine.config import parse_config
from flashrt.engine.shapes import SHAPES


@pytest.mark.parametrize("form", [text_config, whole_config])
@pytest.mark.parametrize("config", SHAPES.values(), ids=SHAPES)
def test_the_form_reads_back_as_the_shape(config, form):
    """By the reader of checkpoints: nothing is lost, and nothing is refused."""
    assert parse_config(form(config, "bfloat16")) == config
