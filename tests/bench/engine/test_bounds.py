"""The least that work must take."""

import attrs
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from flashrt.bench.engine.bounds import Bounds
from flashrt.bench.engine.random_weights import random_layout
from flashrt.engine.shapes import PATTERN, SHAPES
from tests.bench.engine.subjects import RATES

LARGE = Bounds(SHAPES["27b"], torch.bfloat16, RATES)
MIXTURE = Bounds(SHAPES["35b-a3b"], torch.bfloat16, RATES)
TINY = Bounds(SHAPES["tiny"], torch.float32, RATES)


def test_a_step_of_the_largest_shape_reads_what_was_counted_by_hand():
    """51.24 GB of weights, 151 MB of state, 64 KiB of keys and values a token; 3.39 GB a draft."""
    assert LARGE.weight_bytes(1) == pytest.approx(51.25e9, rel=1e-3)
    assert LARGE.step_bytes(1, 0) - LARGE.weight_bytes(1) == 48 * 48 * 128 * 128 * 4
    assert LARGE.step_bytes(1, 1000) - LARGE.step_bytes(1, 0) == 1000 * 65536
    assert LARGE.draft_bytes(0) == pytest.approx(3.39e9, rel=2e-3)


def test_keys_and_values_of_8_bits_are_half_the_bytes():
    """Of a step and of a draft; weights and the state of the linear layers are as they were."""
    narrow = attrs.evolve(LARGE, kv_dtype=torch.float8_e4m3fn)
    assert narrow.step_bytes(1, 0) == LARGE.step_bytes(1, 0)
    assert narrow.step_bytes(1, 1000) - narrow.step_bytes(1, 0) == 1000 * 32768
    assert 2 * (narrow.draft_bytes(1000) - narrow.draft_bytes(0)) == 1000 * 4096
    assert narrow.prompt_flops(1000) == LARGE.prompt_flops(1000)


def test_a_prompt_takes_the_operations_that_were_counted_by_hand():
    """48.7 GFLOP a token, and 0.39 MFLOP a token and token before it."""
    one = LARGE.prompt_flops(1001) - LARGE.prompt_flops(1000)

    assert one == pytest.approx(48.7e9 + 0.39e6 * 1000, rel=0.02)
    assert LARGE.prompt_flops(1, 100_000) - LARGE.prompt_flops(1) == pytest.approx(39e9, rel=0.02)


def test_a_mixture_reads_the_experts_that_rows_choose():
    """Eight of 256 for one row, 2.44 B weights and the head; with many rows all of them."""
    assert MIXTURE.weight_bytes(1) == pytest.approx(5.89e9, rel=0.02)
    assert MIXTURE.weight_bytes(1 << 20) == pytest.approx(2 * (34.661e9 - 0.509e9), rel=0.01)


@settings(max_examples=30)
@given(rows=st.integers(1, 64), context=st.integers(1, 1 << 17), drafts=st.integers(0, 8))
def test_more_work_takes_no_less(rows, context, drafts):
    """Rows, context, drafts and tokens each."""
    for bounds in (TINY, MIXTURE):
        one = bounds.step_ms(rows, context, drafts)
        assert one <= bounds.step_ms(rows + 1, context, drafts)
        assert one < bounds.step_ms(rows, context + 1, drafts)
        assert one < bounds.step_ms(rows, context, drafts + 1)
        assert bounds.prompt_ms(rows, context) <= bounds.prompt_ms(rows + 1, context)


def test_a_short_prompt_is_bound_by_reading_and_a_long_one_by_products():
    """The longer of both times counts."""
    quick = attrs.evolve(RATES, flops=1e12)
    bounds = Bounds(SHAPES["tiny"], torch.float32, quick)

    assert bounds.prompt_ms(1) == bounds.step_bytes(1, 0) / 1e6
    assert bounds.prompt_ms(30_000) == pytest.approx(bounds.prompt_flops(30_000) / 1e9)


def test_a_copy_of_the_head_is_read_instead():
    """By drafts, and by steps of a bfloat16 head; those of another read all of it."""
    size = 1000
    copied = attrs.evolve(LARGE, head_copy_bytes=size)
    head = 248320 * 5120 * 2

    assert LARGE.step_bytes(1, 0) - copied.step_bytes(1, 0) == head - size
    assert LARGE.draft_bytes(0) - copied.draft_bytes(0) == head - size
    wide = attrs.evolve(TINY, head_copy_bytes=size)
    assert wide.step_bytes(1, 0) == TINY.step_bytes(1, 0)
    assert wide.draft_bytes(0) < TINY.draft_bytes(0)


def test_tied_embeddings_are_read_as_the_head():
    """The table is looked up, but the head is read whole."""
    tied = Bounds(attrs.evolve(SHAPES["tiny"], tied_embeddings=True), torch.float32, RATES)

    assert tied.weight_bytes(1) == TINY.weight_bytes(1)


@pytest.mark.parametrize(
    ("number_format", "read"), [("fp8", 26.93e9), ("int4", 15.23e9), ("nvfp4", 16.3e9)]
)
def test_a_packed_model_reads_what_was_counted_by_hand(number_format, read):
    """GB a token with the head in bfloat16; the operations are those of the plain model."""
    layout = random_layout(SHAPES["27b"], number_format)
    packed = Bounds(SHAPES["27b"], torch.bfloat16, RATES, layout)
    assert packed.weight_bytes(1) == pytest.approx(read, rel=0.02)
    assert packed.prompt_flops(100) == LARGE.prompt_flops(100)
    assert packed.draft_bytes(0) == LARGE.draft_bytes(0)


@pytest.mark.parametrize(
    ("number_format", "one", "four"),
    [("fp8", 250.7e6, 534.3e6), ("int4", 136.8e6, 285.2e6), ("nvfp4", 145.8e6, 306.3e6)],
)
def test_a_packed_mixture_reads_the_experts_that_are_chosen(number_format, one, four):
    """Bytes of four layers of the shape without a head: 1 and 4 rows read 9 and 31.53 experts of
    3.15 million weights in each layer, beside 9.4 MB of routers and the like."""
    config = attrs.evolve(SHAPES["35b-a3b"], layer_types=PATTERN, vocab_size=1)
    packed = Bounds(config, torch.bfloat16, RATES, random_layout(config, number_format))
    assert packed.weight_bytes(1) == pytest.approx(one, rel=0.002)
    assert packed.weight_bytes(4) == pytest.approx(four, rel=0.002)
