"""K and V in a dtype of their own: what is stored, who reads it, and every law of the state."""

import attrs
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from flashrt.demo import DEMO_PATH
from flashrt.engine.attention import attend_block, attend_rows
from flashrt.engine.buffers import Buffers
from flashrt.engine.config import FULL, LINEAR
from flashrt.engine.hybrid import HybridEngine
from flashrt.engine.kvcache import FP8, KV_DTYPES, check_served, stored
from flashrt.engine.live import LiveState
from flashrt.engine.protocol import EngineMisuse, RawBuffer, RowBlock
from flashrt.engine.selfcheck import same_bits
from flashrt.engine.shapes import DENSE
from flashrt.errors import CannotServe, EngineFailed
from flashrt.serve import load_voice
from flashrt.settings import Settings, fields
from tests.engine.contract import fill, same_capsule, whole
from tests.engine.drafted import make_drafted
from tests.engine.laws import check_every_law
from tests.engine.models import Shape, config_of, ids, make_engine, reference, weights_of
from tests.engine.moving import filed
from tests.source import ROOT

PROMPT = ids(150)
BF16, F32 = torch.bfloat16, torch.float32
NUMBERS = st.lists(st.floats(allow_nan=False, width=32), min_size=1, max_size=50)

PLACES = [
    (F32, FP8, "cpu"),
    pytest.param((BF16, FP8, "cpu"), marks=pytest.mark.slow),
    pytest.param((F32, BF16, "cpu"), marks=pytest.mark.slow),
    *(
        pytest.param((dtype, kv_dtype, "cuda"), marks=pytest.mark.gpu)
        for dtype, kv_dtype in ((F32, FP8), (F32, BF16), (BF16, FP8))
    ),
]


# -- what is stored --------------------------------------------------------------------------------


@given(NUMBERS)
def test_a_stored_number_is_near_or_the_largest(numbers):
    """Within 2 ** -4 of itself or 2 ** -10, whatever its size; beyond 448 it is 448 of its sign."""
    rows = torch.tensor(numbers, dtype=torch.float32)
    most = torch.finfo(FP8).max
    got, kept = stored(rows, FP8).double(), rows.double().clamp(-most, most)
    assert ((got - kept).abs() <= torch.clamp(kept.abs() * 2**-4, min=2**-10)).all()
    assert (torch.signbit(got) == torch.signbit(rows)).all()


@pytest.mark.parametrize("kv_dtype", [FP8, BF16, F32], ids=str)
@pytest.mark.parametrize("dtype", [BF16, F32], ids=str)
def test_what_is_stored_is_stored_again_as_it_is(dtype, kv_dtype):
    """Every number of e4m3 in either dtype; and what is not a number stays so."""
    every = torch.arange(256, dtype=torch.uint8).view(FP8)
    again = stored(every.to(dtype), kv_dtype)
    number = ~torch.isnan(every.float())
    assert same_bits(again[number].to(FP8), every[number])
    assert torch.isnan(again[~number].float()).all()


def test_the_words_of_the_setting_are_the_dtypes_there_are():
    """Of serving; `inspect` and `bench` are held to the same by their own tests."""
    (field,) = (field for field in fields() if field.name == "kv_cache_dtype")
    assert tuple(KV_DTYPES) == field.metadata["choices"]
    assert KV_DTYPES[Settings().kv_cache_dtype] is None


def test_a_gpu_without_e4m3_is_refused(monkeypatch):
    """By its name, with what it has, what it would need, and the way out; before anything loads."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (8, 0))
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "an older card")
    words = r"--kv-cache-dtype fp8: an older card has .* 8\.0, .* 8\.9; use --kv-cache-dtype bf16"
    with pytest.raises(CannotServe, match=words):
        check_served(FP8, torch.device("cuda"))
    check_served(BF16, torch.device("cuda"))
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (8, 9))
    check_served(FP8, torch.device("cuda"))


# -- who reads it ----------------------------------------------------------------------------------


def attention_in_float64(q, kv, position):
    """Row by row over the numbers as they are."""
    keys, values = kv.double().repeat_interleave(q.shape[1] // kv.shape[1], dim=1)
    rows = []
    for r, row in enumerate(q.double()):
        end = position + r + 1
        scores = torch.einsum("hd,hsd->hs", row, keys[:, :end]) * q.shape[-1] ** -0.5
        rows.append(torch.einsum("hs,hsd->hd", scores.softmax(-1), values[:, :end]))
    return torch.stack(rows).float()


@pytest.mark.parametrize("kv_dtype", [FP8, BF16], ids=str)
@pytest.mark.parametrize("heads", [(2, 2), (6, 2), (4, 1)], ids=str)
@pytest.mark.parametrize("position", [0, 700, 1022])
def test_attention_is_that_of_the_stored_numbers(position, heads, kv_dtype):
    """Rows and blocks, to the last digits of float32; stale rows behind them are never read."""
    draw = torch.Generator().manual_seed(0)
    q = torch.randn(4, heads[0], 16, generator=draw)
    kv = stored(torch.randn(2, heads[1], 2048, 16, generator=draw) * 3, kv_dtype)
    kv[:, :, position + 4 :] = torch.nan
    wanted = attention_in_float64(q, kv, position)
    torch.testing.assert_close(attend_rows(q, kv, position, 4), wanted, atol=1e-5, rtol=0)
    torch.testing.assert_close(attend_block(q, kv, position), wanted, atol=1e-5, rtol=0)


def test_a_block_and_rows_store_the_same_numbers_of_the_same_rows():
    """K and V of the first token are those of the wide cache, rounded, by a block and by rows."""
    narrow, wide = (make_engine(kv_dtype=kv_dtype)._live for kv_dtype in (FP8, None))
    for live in (narrow, wide):
        live.reset()
        live.process_block(PROMPT[:1])
    first = stored(wide.buffers.kv[:, :, :, :1], FP8)
    assert same_bits(narrow.buffers.kv[:, :, :, :1], first)
    for live in (narrow, wide):
        live.reset()
        live.process_rows(PROMPT[:1])
    assert same_bits(narrow.buffers.kv[:, :, :, :1], stored(wide.buffers.kv[:, :, :, :1], FP8))


# -- the laws of the state -------------------------------------------------------------------------


@pytest.fixture(scope="module", params=PLACES, ids=lambda place: " ".join(map(str, place)))
def pair(request) -> tuple[HybridEngine, HybridEngine]:
    """Two engines of the same weights."""
    dtype, kv_dtype, device = request.param
    one, other = (
        make_drafted(dtype=dtype, kv_dtype=kv_dtype, device=device, max_seq=256) for _ in range(2)
    )
    assert one._live.buffers.kv.dtype == one._live.buffers.mtp_kv.dtype == kv_dtype
    return one, other


def test_every_law_holds_over_a_narrow_cache(pair):
    """Restored = never left; rolled back = never decoded; drafts or none = the same bytes."""
    engine, other = pair
    for one in pair:
        one.reset()
    check_every_law(engine, other, PROMPT)


def test_a_capsule_keeps_the_bytes_of_the_cache_everywhere(pair):
    """On the device, on the host, and as the bytes of a file: never converted, half the size."""
    engine, other = pair
    engine.reset()
    fill(engine, PROMPT[:100])
    capsule = engine.snapshot()
    (block,) = capsule.rows
    live = engine._live.buffers
    assert same_bits(block.buffers["kv"], live.kv[:, :, :, :100])
    assert block.block_bytes == sum(b.nbytes for b in block.buffers.values())
    assert block.block_bytes == live.row_bytes(0, 100)
    as_file = RowBlock(0, block.packed, filed(engine, block.buffers), block.block_bytes)
    for name, buffer in block.buffers.items():
        assert buffer.dtype == live.kv.dtype
        assert same_bits(as_file.buffers[name], buffer.cpu())
    raw = engine.to_bytes(engine.to_host(block.buffers).wait())
    assert {b.dtype for b in raw.values()} == {engine.info.kv_dtype}
    other.restore(attrs.evolve(capsule, rows=(as_file,)))
    assert same_capsule(other.snapshot(), capsule)


def test_engines_with_another_cache_have_another_identity():
    """Each dtype of K and V its own; the model's own, asked for or not, is one."""
    names = {
        (dtype, kv_dtype): make_engine(dtype=dtype, kv_dtype=kv_dtype, max_seq=64).info.identity
        for dtype in (F32, BF16)
        for kv_dtype in (None, F32, BF16, FP8)
    }
    for dtype in (F32, BF16):
        assert names[dtype, dtype] == names.pop((dtype, None))
    assert len(set(names.values())) == len(names) == 6


def test_a_capsule_of_another_cache_is_not_taken():
    """Nor its buffers, were it to say that it is this engine's; and a file's dtype counts."""
    narrow, wide = (make_engine(kv_dtype=kv_dtype, max_seq=256) for kv_dtype in (FP8, None))
    capsules = []
    for one in (narrow, wide):
        fill(one, PROMPT[:70])
        capsules.append(one.snapshot())
    for one, capsule in zip((wide, narrow), capsules, strict=True):
        with pytest.raises(EngineMisuse, match="a capsule of engine"):
            one.restore(capsule)
        with pytest.raises(EngineFailed, match="'kv' is"):
            one.restore(attrs.evolve(capsule, identity=one.info.identity))
    raw = RawBuffer("float8_e5m2", (1,), b"1")
    with pytest.raises(ValueError, match=r"float8_e5m2.*float8_e4m3fn"):
        narrow.from_bytes({"kv": raw})


def test_a_narrow_cache_takes_half_and_all_else_is_as_it_was():
    """Of bfloat16; the state that does not grow is byte for byte as large."""
    narrow, wide = (make_drafted(dtype=BF16, kv_dtype=kv_dtype) for kv_dtype in (FP8, None))
    one, other = narrow._live.buffers, wide._live.buffers
    assert 2 * one.row_bytes(0, 100) == other.row_bytes(0, 100)
    assert one.state_bytes(63, 4) == other.state_bytes(63, 4)
    assert other.nbytes - one.nbytes == one.kv.nbytes + one.mtp_kv.nbytes
    for engine in (narrow, wide):
        fill(engine, PROMPT[:100])
    capsule = narrow.snapshot()
    sizes = {name: buffer.nbytes for name, buffer in whole(capsule).items()}
    assert capsule.capsule_bytes == sum(sizes.values())
    assert wide.snapshot().capsule_bytes - capsule.capsule_bytes == sizes["kv"] + sizes["mtp_kv"]


# -- how much it costs, and how far it reaches -----------------------------------------------------


def test_logits_are_near_those_of_the_wide_cache():
    """Of a random model with logits of size 3: within 0.5 everywhere, and 0.1 on the average."""
    model = reference()
    with torch.no_grad():
        wanted = model(torch.tensor([PROMPT])).logits[0, -1]
    weights = weights_of(model)
    for rows in (0, 40):
        live = LiveState.allocate(config_of(model), weights, 256, FP8)
        live.reset()
        live.process_block(PROMPT[: len(PROMPT) - rows])
        if rows:
            live.process_rows(PROMPT[len(PROMPT) - rows :])
        off = (live.logits() - wanted).abs()
        assert off.max() < 0.5
        assert off.mean() < 0.1


@pytest.mark.slow
def test_the_demo_reads_a_text_almost_as_over_the_wide_cache():
    """Of each word of the licence: the likeliest next id is the same for nine of ten, and all of
    the distributions are near; 10 s. docs/checkpoints.md tells the figures."""
    text = load_voice(DEMO_PATH).tokenizer.encode_text((ROOT / "LICENSE").read_text())[:2048]
    logits = []
    for kv_dtype in (None, FP8):
        engine = HybridEngine.load(DEMO_PATH, kv_dtype=kv_dtype, max_seq=2048, progress=False)
        rows = []
        for at in range(0, len(text), 64):
            fill(engine, text[at : at + 64])
            rows.append(engine._live.logits_of(len(text[at : at + 64])))
        logits.append(torch.cat(rows).double().log_softmax(-1))
    wide, narrow = logits
    same = (wide.argmax(-1) == narrow.argmax(-1)).double().mean()
    divergence = (wide.exp() * (wide - narrow)).sum(-1)
    assert same > 0.9
    assert divergence.mean() < 0.02


FAR = 262_144
"""The window of the largest shapes."""


def test_the_last_rows_of_the_longest_window_are_read():
    """By rows and by a block, up to the very end of 262,144, and all before them too."""
    q = torch.ones(2, 2, 16)
    kv = torch.zeros(2, 1, FAR, 16, dtype=FP8)
    kv[1, :, -1] = 8
    kv[0, :, -1] = 4  # a score 16 above all others
    share = torch.tensor(16.0).exp()
    wanted = 8 * share / (share + FAR - 1)
    for got in (attend_rows(q, kv, FAR - 2, 2)[1], attend_block(q, kv, FAR - 2)[1]):
        torch.testing.assert_close(got, wanted.expand(2, 16), atol=1e-4, rtol=0)


def test_a_cache_of_more_numbers_than_32_bits_count_is_stored_to_its_end():
    """The last layer's last row, and no other, through the very view that a layer has."""
    config = attrs.evolve(DENSE, layer_types=(LINEAR, FULL, FULL, FULL, FULL, FULL), mtp_layers=0)
    buffers = Buffers.allocate(config, FAR, torch.device("meta"), BF16, kv_dtype=FP8)
    assert buffers.kv.numel() > 1 << 31
    assert buffers.row_bytes(0, FAR) == buffers.kv.nbytes == buffers.kv.numel()
    kv = torch.empty(buffers.kv.shape, dtype=FP8)  # pages that nobody touches take no memory
    kv.view(-1)[-2 * config.head_dim :].zero_()
    kv[-1][1, -1:, FAR - 1 :] = stored(torch.ones(1, 1, config.head_dim), FP8)
    flat = kv.view(-1)
    assert flat[-config.head_dim :].float().eq(1).all()
    assert not flat[-2 * config.head_dim : -config.head_dim].float().any()


def test_a_state_at_the_end_of_the_longest_window_keeps_the_laws():
    """Rows over the last multiple of 64, alone and together, saved, left and brought back; then a
    block up to the end: the same bytes."""
    model = reference(Shape(head_dim=16, kv_heads=1, layers=2, interval=2))
    config = attrs.evolve(config_of(model), max_positions=FAR)
    live = LiveState.allocate(config, weights_of(model), FAR, FP8)
    live.reset()
    live.process_block(PROMPT[:61])
    start = FAR - 67  # 61 rows of its chunk are there
    rows = torch.randn(1, 2, 1, start, 16, generator=torch.Generator().manual_seed(2))
    before = {**live.saved_state(61), "kv": stored(rows, FP8)}
    ends = []
    for size in (1, 7):
        live.load(start, before)
        for lo in range(0, 7, size):
            live.process_rows(PROMPT[lo : lo + size])
        middle = live.saved(live.position)
        live.reset()
        live.load(FAR - 60, middle)
        live.process_block(PROMPT[:60])
        ends.append(live.saved(FAR))
    assert all(same_bits(ends[0][name], ends[1][name]) for name in ends[0])
    assert same_bits(ends[0]["kv"][:, :, :, :start], before["kv"])
    assert ends[0]["kv"][:, :, :, start:].float().any(-1).all()
