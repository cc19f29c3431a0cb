"""Which window fits."""

import attrs
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from flashrt.bench.engine.random_weights import random_model
from flashrt.demo import DEMO_PATH
from flashrt.engine.attention import SPLIT
from flashrt.engine.kvcache import FP8
from flashrt.engine.live import LiveState
from flashrt.engine.memory import GB, Memory, Needs, chosen, planned
from flashrt.engine.placement import Placement
from flashrt.engine.shapes import SHAPES
from flashrt.engine.tensor_plan import Layout
from flashrt.errors import CannotServe

CPU = Placement(torch.device("cpu"), torch.float32)
GPU = Placement(torch.device("cuda"), torch.bfloat16)


def needs(shape: str, placement: Placement = GPU, **other: object) -> Needs:
    """Of a named shape with its MTP layer."""
    of = Needs(SHAPES[shape], placement, Layout(mtp=True), block_tokens=1024, capsules=None)
    return attrs.evolve(of, **other)


@pytest.mark.parametrize("kv_dtype", [torch.float32, FP8], ids=str)
@pytest.mark.parametrize("mtp", [False, True], ids=["plain", "mtp"])
@pytest.mark.parametrize("shape", ["tiny", "tiny-moe"])
@pytest.mark.parametrize("max_seq", [2, 1000, 1024, 1025, 3000])
def test_what_is_allocated_is_what_was_counted(shape, max_seq, mtp, kv_dtype):
    """Byte for byte: weights, state, and a capsule of the whole window."""
    config = attrs.evolve(SHAPES[shape], mtp_layers=int(mtp))
    made = random_model(config, CPU.device, CPU.dtype)
    live = LiveState.allocate(made.config, made.weights, max_seq, kv_dtype)

    place = attrs.evolve(CPU, kv_dtype=kv_dtype)
    said = needs(shape, place, config=config, layout=Layout(mtp=mtp)).of(max_seq, 0, auto=True)

    weights = {t.untyped_storage()._cdata: t.untyped_storage() for t in made.tensors.values()}
    assert said.weights == sum(storage.nbytes() for storage in weights.values())
    assert said.state == live.buffers.nbytes + sum(t.nbytes for t in live.model.tables)
    window = live.buffers.state_bytes(63, config.conv_kernel)
    assert said.capsules == window + live.buffers.row_bytes(0, max_seq)


@settings(max_examples=40)
@given(
    shape=st.sampled_from(["27b", "35b-a3b", "tiny"]),
    share=st.floats(-0.01, 1.01),
    capsules=st.sampled_from([None, 0, 2 << 30]),
    block_tokens=st.sampled_from([64, 1024, 8192]),
)
def test_the_longest_window_fits_and_no_longer_one_does(shape, share, capsules, block_tokens):
    """One more step of the buffers is too much, or beyond the model; none: the shortest is."""
    wish = needs(shape, capsules=capsules, block_tokens=block_tokens)
    least, most = (
        wish.of(window, 0, auto=True).needed for window in (SPLIT, wish.config.max_positions)
    )
    free = round(least + share * (most - least))

    found = wish.longest(free)

    if found is None:
        assert not wish.of(SPLIT, free, auto=True).fits
    else:
        assert found.fits
        longer = found.max_seq + SPLIT
        assert longer > wish.config.max_positions or not wish.of(longer, free, auto=True).fits


@given(few=st.integers(2, 1 << 18), more=st.integers(2, 1 << 18), free=st.integers(0, 1 << 37))
@settings(max_examples=40)
def test_a_longer_window_takes_no_less(few, more, free):
    """So a window that does not fit shows that no longer one does; more memory, no shorter one."""
    few, more = sorted((few, more))
    wish = needs("27b")

    assert wish.of(few, 0, auto=True).needed <= wish.of(more, 0, auto=True).needed
    less, much = wish.longest(free), wish.longest(free + (1 << 33))
    assert less is None or (much is not None and less.max_seq <= much.max_seq)


def test_a_whole_window_of_the_largest_shape_fits_an_h200():
    """And on 80 GB half of it does."""
    assert chosen(needs("27b"), None, 140 * 10**9).max_seq == 262144
    assert 100_000 < chosen(needs("27b"), None, 80 * 10**9).max_seq < 200_000


def test_a_narrow_cache_makes_the_window_longer():
    """On 80 GB nearly twice as long; keys and values of the whole window take half."""
    narrow = needs("27b", attrs.evolve(GPU, kv_dtype=FP8))
    longest = [chosen(wish, None, 80 * 10**9).max_seq for wish in (needs("27b"), narrow)]
    assert 1.7 * longest[0] < longest[1] < 262144
    wide, half = (wish.of(262144, 0, auto=True) for wish in (needs("27b"), narrow))
    spared = 262144 * 17 * 2 * 4 * 256  # a byte each, of 16 layers and the MTP layer
    assert wide.state - half.state == spared
    assert wide.capsules - half.capsules == spared - 2 * 4 * 256


def numbers(memory: Memory) -> list[str]:
    """Everything that is not 0, as it is written."""
    sizes = attrs.asdict(memory)
    sizes.pop("max_seq")
    return [f"{size / GB:.2f}" for size in (*sizes.values(), memory.needed) if size]


def test_a_window_that_does_not_fit_is_refused_with_all_numbers():
    """What each part takes, what is free, what is lacking, what would fit, and what else helps."""
    wish, free = needs("27b", capsules=5 << 30), 80 * 10**9

    with pytest.raises(CannotServe) as refused:
        chosen(wish, 262144, free)

    words, asked, longest = str(refused.value), wish.of(262144, free), wish.longest(free)
    assert [number for number in numbers(asked) if number not in words] == []
    assert f"{(asked.needed - free) / GB:.2f} GB too much" in words
    assert words.startswith("--max-seq 262144 does not fit on cuda")
    assert f"--max-seq {longest.max_seq} fits" in words
    assert "--capsule-budget-mb" in words
    assert "--chunk-tokens" in words
    assert chosen(wish, longest.max_seq, free).fits


@pytest.mark.parametrize(("free_gb", "helps"), [(80, True), (70, False), (64, False)])
def test_keys_and_values_of_8_bits_are_named_where_they_make_it_fit(free_gb, helps):
    """And nowhere else."""
    with pytest.raises(CannotServe) as refused:
        chosen(needs("27b"), 262144, free_gb * 10**9)

    narrow = needs("27b", attrs.evolve(GPU, kv_dtype=FP8)).of(262144, free_gb * 10**9)
    assert narrow.fits == helps
    assert ("--kv-cache-dtype fp8 makes it fit" in str(refused.value)) == helps


def test_where_no_window_fits_the_shortest_is_told():
    """With its numbers, and nothing that would not help."""
    wish, free = needs("27b"), 50 * 10**9

    with pytest.raises(CannotServe) as refused:
        chosen(wish, None, free)

    words = str(refused.value)
    assert words.startswith("no window fits on cuda")
    assert [n for n in numbers(wish.of(SPLIT, free, auto=True)) if n not in words] == []
    assert "a smaller model" in words
    assert "--capsule-budget-mb" not in words


def test_a_window_that_is_asked_for_needs_no_room_for_saved_states():
    """Unless these were asked for, too."""
    wish, longest = needs("27b"), needs("27b").longest(80 * 10**9)

    assert chosen(wish, longest.max_seq + 10 * SPLIT, 80 * 10**9).capsules == 0
    with pytest.raises(CannotServe, match="does not fit"):
        chosen(attrs.evolve(wish, capsules=12 << 30), longest.max_seq, 80 * 10**9)


def test_a_checkpoint_is_counted_without_reading_its_weights():
    """As its files say: with the MTP layer, and the model's own window where there is room."""
    found = planned(DEMO_PATH, CPU, max_seq=None, block_tokens=1024, capsules=0)
    short = planned(DEMO_PATH, CPU, max_seq=2048, block_tokens=1024, capsules=0)

    files = sum(file.stat().st_size for file in DEMO_PATH.glob("*.safetensors"))
    assert found.max_seq == 40960
    assert short.max_seq == 2048
    assert short.needed < found.needed < found.free
    assert found.weights >= 0.99 * files
