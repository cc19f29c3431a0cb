"""What a pass holds, against what it is said to hold."""

import attrs
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from flashrt.bench.engine.random_weights import random_model
from flashrt.engine import matrix
from flashrt.engine.activations import Activations
from flashrt.engine.attention import attend_block
from flashrt.engine.config import ModelConfig
from flashrt.engine.forms import DENSE_PEAK
from flashrt.engine.kvcache import FP8
from flashrt.engine.live import LiveState
from flashrt.engine.shapes import PATTERN, SHAPES
from tests.engine.metering import Meter

CPU = torch.device("cpu")
ROOM = 2.0
"""How much more than is held may be reserved: what nobody uses is missing for saved states."""


@st.composite
def configs(draw: st.DrawFn) -> ModelConfig:
    """One linear layer and one with attention, of any proportions."""
    base = SHAPES[draw(st.sampled_from(["tiny", "tiny-moe"]))]
    kv_heads, key_heads = draw(st.sampled_from([1, 2])), draw(st.sampled_from([1, 2, 4]))
    return attrs.evolve(
        base,
        vocab_size=64,
        layer_types=PATTERN[2:],
        mtp_layers=draw(st.sampled_from([0, 1])),
        hidden_size=draw(st.sampled_from([32, 128, 512])),
        intermediate_size=0 if base.moe else draw(st.sampled_from([64, 1024, 4096])),
        num_kv_heads=kv_heads,
        num_heads=kv_heads * draw(st.sampled_from([1, 4])),
        linear_key_heads=key_heads,
        linear_value_heads=key_heads * draw(st.sampled_from([1, 3])),
        linear_value_dim=draw(st.sampled_from([16, 64])),
    )


def held(
    config: ModelConfig, dtype: torch.dtype, before: int, tokens: int, kv_dtype: torch.dtype
) -> int:
    """Bytes of tensors that a block of so many tokens holds at once."""
    made = random_model(config, CPU, dtype)
    live = LiveState.allocate(made.config, made.weights, before + tokens, kv_dtype)
    live.reset()
    if before:
        live.process_block([1] * before)
    with Meter() as meter:
        live.process_block([2] * tokens)
    return meter.peak


@settings(max_examples=6)
@given(
    config=configs(),
    dtype=st.sampled_from([torch.float32, torch.bfloat16]),
    narrow=st.booleans(),
    before=st.sampled_from([0, 100]),
    tokens=st.integers(64, 400),
)
def test_a_block_holds_no_more_than_is_said_and_not_much_less(
    config, dtype, narrow, before, tokens
):
    """Counted operation by operation on the real path, with K and V of 8 bits or of the dtype."""
    activations = Activations(config, dtype.itemsize, converted=narrow)
    said = activations.block_bytes(tokens, before + tokens)

    real = held(config, dtype, before, tokens, FP8 if narrow else dtype)

    assert real <= said
    # Attention may need its scores, which the library of this machine spares.
    spared = activations.attention_scores_bytes(before + tokens)
    assert said <= ROOM * real + spared


@pytest.mark.parametrize("kv_heads", [1, 2, 4])
def test_a_window_of_8_bits_is_converted_head_by_head(kv_heads):
    """Attention alone behind a long window holds less than is said, and less than a wide copy of
    the whole window where heads are more than one."""
    config = attrs.evolve(SHAPES["tiny"], num_kv_heads=kv_heads, num_heads=kv_heads)
    window, d = 1 << 15, config.head_dim
    kv = torch.zeros(2, kv_heads, window, d, dtype=FP8)
    q = torch.zeros(4, kv_heads, d)
    with Meter() as meter:
        attend_block(q, kv, window - 4)
    wide = 2 * window * d * torch.float32.itemsize
    said = Activations(config, 4, converted=True)
    assert wide <= meter.peak <= said.attention_scores_bytes(window) + wide + 3 * q.nbytes
    assert meter.peak < 1.5 * wide
    more = said.block_bytes(4, window) - attrs.evolve(said, converted=False).block_bytes(4, window)
    assert more >= wide


@pytest.mark.parametrize("shape", ["tiny", "tiny-moe"])
def test_a_packed_model_holds_no_more_than_is_said(shape, monkeypatch):
    """A slice of a matrix in plain numbers, beside what a plain model holds."""
    numbers = 1 << 12
    monkeypatch.setattr(matrix, "SLICE_NUMBERS", numbers)
    made = random_model(SHAPES[shape], CPU, torch.bfloat16, number_format="int4")
    live = LiveState.allocate(made.config, made.weights, 200)
    live.reset()
    with Meter() as meter:
        live.process_block(range(200))
    plain = Activations(made.config, 2)
    assert meter.peak <= plain.block_bytes(200, 200) + numbers * DENSE_PEAK
    packed = Activations(made.config, 2, packed=True)
    assert packed.step_bytes(200, 200) == plain.step_bytes(200, 200) + matrix.SLICE_BYTES


def test_the_head_holds_no_more_than_is_said():
    """The logits of the deepest draft, with a dtype whose weights are widened."""
    made = random_model(SHAPES["tiny"], CPU, torch.bfloat16)
    live = LiveState.allocate(made.config, made.weights, 200)
    live.reset()
    live.process_block(range(100))

    with Meter() as meter:
        kept = live.logits_of(64)

    said = Activations(made.config, 2).logits_bytes()
    assert kept.nbytes < meter.peak <= said


@pytest.mark.parametrize("shape", SHAPES)
def test_more_takes_no_less(shape):
    """More tokens in a block, and a longer window."""
    activations = Activations(SHAPES[shape], 2)
    windows = [1 << n for n in range(10, 19)]
    by_window = [activations.step_bytes(1024, window) for window in windows]
    by_rows = [activations.step_bytes(1 << n, 1 << 13) for n in range(6, 14)]

    assert by_window == sorted(by_window)
    assert by_rows == sorted(by_rows)
    assert by_rows[0] < by_rows[-1]
