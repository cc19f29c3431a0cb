"""The real engine: leaving is free, rolling back is free, rows are independent; bit for bit."""

import itertools
import re
from collections.abc import Iterator

import attrs
import pytest
import torch
from safetensors.torch import save_file

from flashrt.engine.hybrid import HybridEngine
from flashrt.engine.kvcache import FP8
from flashrt.engine.protocol import (
    Capsule,
    EngineMisuse,
    SamplingParams,
)
from flashrt.engine.selfcheck import same_bits
from flashrt.errors import CannotServe, EngineFailed
from tests.engine.contract import CHECKS, fill, same_capsule, take, whole
from tests.engine.drafted import MtpReference, make_drafted
from tests.engine.models import PLAIN, Shape, config_of, ids, make_engine, reference, weights_of
from tests.engine.moving import MOVING
from tests.engine.sharing import SHARING, bits
from tests.engine.twin import twin_of

DTYPES = (torch.float32, torch.bfloat16)
PLACES = [
    *((dtype, "cpu") for dtype in DTYPES),
    *(pytest.param((dtype, "cuda"), marks=pytest.mark.gpu) for dtype in DTYPES),
]
MIXTURE = Shape(layers=2, interval=2, experts=5, experts_per_row=2)
GPU_MIXTURES = [pytest.param((dtype, "cuda", MIXTURE), marks=pytest.mark.gpu) for dtype in DTYPES]
# K and V of 8 bits; tests/engine/test_kvcache.py has the sample that runs by default.
NARROW = [
    *(pytest.param((dtype, "cpu", PLAIN, FP8), marks=pytest.mark.slow) for dtype in DTYPES),
    *(pytest.param((dtype, "cuda", PLAIN, FP8), marks=pytest.mark.gpu) for dtype in DTYPES),
    pytest.param((torch.bfloat16, "cuda", MIXTURE, FP8), marks=pytest.mark.gpu),
]
SEEDED = SamplingParams(temperature=1.0, seed=5)
PROMPT = ids(400)


def named(place: tuple) -> str:
    """Of one of them."""
    words = f"{place[1]} {place[0]}" + " mixture" * (MIXTURE in place)
    return f"{words}, K and V in {place[3]}" if len(place) > 3 else words


def made(place: tuple, max_seq: int) -> HybridEngine:
    """There."""
    dtype, device, shape, kv_dtype = (*place, *(PLAIN, None)[len(place) - 2 :])
    return make_drafted(shape, dtype=dtype, kv_dtype=kv_dtype, device=device, max_seq=max_seq)


@pytest.fixture(
    scope="module",
    params=[
        *PLACES,
        pytest.param((torch.bfloat16, "cpu", MIXTURE), marks=pytest.mark.slow),
        pytest.param((torch.float32, "cpu", MIXTURE), marks=pytest.mark.slow),
        *GPU_MIXTURES,
        *NARROW,
    ],
    ids=named,
)
def engines(request) -> list[HybridEngine]:
    """Three of the same weights."""
    return [made(request.param, 512) for _ in range(3)]


@pytest.fixture
def engine(engines) -> HybridEngine:
    engines[0].reset()
    return engines[0]


@pytest.fixture
def other(engines) -> HybridEngine:
    engines[1].reset()
    return engines[1]


@pytest.fixture
def spare(engines) -> HybridEngine:
    return engines[2]


# The checks' own laws; that they hold in bfloat16 too is what the other tests here show.
CHECKED = [
    *(PLACES[0], pytest.param(PLACES[1], marks=pytest.mark.slow), *PLACES[2:]),
    *GPU_MIXTURES,
    *NARROW,
]


@pytest.fixture(scope="module", params=CHECKED, ids=named)
def small_pair(request) -> tuple[HybridEngine, HybridEngine]:
    """With the window that the contract fills."""
    one, other = (made(request.param, 256) for _ in range(2))
    return one, other


@pytest.mark.parametrize("check", [*CHECKS, *SHARING, *MOVING], ids=lambda check: check.__name__)
def test_the_real_engine_keeps_the_contract(small_pair, check):
    """The law named by the check holds, in both dtypes."""
    for one in small_pair:
        one.reset()
    check(*small_pair)


def path(engine: HybridEngine, count: int) -> Iterator[Capsule]:
    """Capsules after each of `count` ids decoded one by one."""
    single = attrs.evolve(SEEDED, draft_tokens=0)
    for _, _chunk in zip(range(count), engine.decode(single), strict=False):
        yield engine.snapshot()


def pollute(engine: HybridEngine) -> None:
    """Something else: another text, longer than what is kept."""
    engine.reset()
    fill(engine, PROMPT[::-1][:270])
    take(engine, 2)


def test_restored_at_every_window_fill_is_never_left(engine, other):
    """Decoded to every fill 0..63: another session, restore, go on = the same ids and bytes."""
    fill(engine, PROMPT[:61])
    capsules = [engine.snapshot(), *path(engine, 72)]
    pollute(other)
    for i in range(68):
        other.restore(capsules[i])
        assert same_capsule(other.snapshot(), capsules[i])
        *_, last = path(other, 4)
        assert same_capsule(last, capsules[i + 4])


def test_restored_after_prefill_at_every_fill_is_never_left(engine, other):
    """Prefilled to every fill, on and off the grid, then another block and decoded ids."""
    for length in range(128, 192):
        engine.reset()
        fill(engine, PROMPT[:length], (64,))
        capsule = engine.snapshot()
        for one in (engine, other):
            if one is other:
                other.restore(capsule)
            fill(one, PROMPT[length : length + 40])
            take(one, 2, SEEDED)
        assert same_capsule(engine.snapshot(), other.snapshot())


def test_restored_capsules_read_no_stale_byte(engine, other):
    """Buffers full of not-a-number before the restore change nothing after it."""
    for length in (3, 64, 100, 128):
        engine.reset()
        fill(engine, PROMPT[:length])
        take(engine, 3, SEEDED)
        capsule = engine.snapshot()
        *_, wanted = path(engine, 70)
        buffers = other._live.buffers
        names = ("anchors", "raw", "keys", "values", "decays", "kv", "hidden", "mtp_kv")
        for name in names:
            getattr(buffers, name).fill_(torch.nan)
        other.restore(capsule)
        *_, got = path(other, 70)
        assert same_capsule(got, wanted)


@pytest.mark.parametrize(("prompt", "decoded"), [(100, 70), (60, 69), (63, 67)])
def test_rolled_back_is_never_decoded(engine, spare, prompt, decoded):
    """1 to 64 decoded ids, over a multiple of 64 and up to it: the same ids and bytes."""
    fill(engine, PROMPT[:prompt])
    capsules = [engine.snapshot(), *path(engine, decoded)]
    for n in range(1, 65):
        there = twin_of(engine, spare)
        there.rollback(n)
        assert same_capsule(there.snapshot(), capsules[decoded - n])
        if n % 7 == 1:
            *_, last = path(there, min(n, 9))
            assert same_capsule(last, capsules[decoded - n + min(n, 9)])


@pytest.mark.parametrize("prompt", [130, 191, 192, 193, 200])
def test_rolled_back_prefill_is_the_block_seen_at_the_shorter_length(engine, other, spare, prompt):
    """Bytes and what follows equal a capsule that was taken of the block by length."""
    fill(engine, PROMPT[:prompt])
    for n in range(65):
        there = twin_of(engine, spare)
        there.rollback(n)
        there.drop_pending()
        if n < 64:
            capsule = engine.snapshot(prompt - n - 1)
            assert same_capsule(there.snapshot(), capsule)
            other.restore(capsule)
        else:
            other.restore(there.snapshot())
        if n % 9 == 1:
            assert take(there, 5, SEEDED) == take(other, 5, SEEDED)
            assert same_capsule(there.snapshot(), other.snapshot())


def test_rolled_back_prefill_still_computes_the_reference():
    """Logits after rolling prefilled tokens back over a fold are the reference's, within 2e-4."""
    model = reference()
    engine = HybridEngine(config_of(model), weights_of(model), max_seq=512, model_name="random")
    with torch.no_grad():
        wanted = model(torch.tensor([PROMPT])).logits[0]
    for prompt, n in ((200, 20), (192, 64), (192, 1), (129, 60)):
        engine.reset()
        fill(engine, PROMPT[:prompt])
        engine.rollback(n)
        engine.drop_pending()
        fill(engine, PROMPT[prompt - n - 1 : prompt - n + 3], (prompt - n,))
        at = engine.position
        torch.testing.assert_close(engine._live.logits(), wanted[at - 1], atol=2e-4, rtol=0)


@pytest.mark.parametrize("count", [2, 3, 5, 8, 16, 64])
def test_rows_together_have_the_bits_of_rows_alone(engine, count):
    """Every row at every index among 2, 3, 5, 8, 16 and 64 rows; the state's bytes follow too."""
    live, rows, start = engine._live, PROMPT[:66], 30
    live.process_block(PROMPT[100 : 100 + start])
    states, hidden = [live.saved(start)], []
    for row in rows:
        live.process_rows([row])
        states.append(live.saved(live.position))
        hidden.append(states[-1]["hidden"])
    for first in range(len(rows) - count + 1):
        live.load(start + first, states[first])
        live.process_rows(rows[first : first + count])
        after = live.saved(live.position)
        assert all(same_bits(after[name], states[first + count][name]) for name in after)
        for r in range(first, first + count):
            at = (start + r) % len(live.buffers.hidden)
            assert same_bits(live.buffers.hidden[at], hidden[r])


def test_drafts_that_do_not_stay_leave_no_trace(engine, other):
    """Rows over a multiple of 64, taken back by length, then the rows that count."""
    for one in (engine, other):
        one._live.process_block(PROMPT[:120])
    for draft in (6, 8, 16, 12):
        engine._live.process_rows(PROMPT[300 : 300 + draft])
        engine._live.truncate(engine.position - draft + 3)
        engine._live.truncate(engine.position - 3)
        for one in (engine, other):
            one._live.process_rows(PROMPT[200:203])
        states = [one._live.saved(one.position) for one in (engine, other)]
        assert all(same_bits(states[0][name], states[1][name]) for name in states[0])


def test_a_capsule_never_changes_and_counts_its_bytes(engine):
    """It is a copy: what the engine does later does not reach it. Its size is that of its bytes."""
    fill(engine, PROMPT[:100])
    capsule = engine.snapshot()
    before = {name: buffer.copy() for name, buffer in bits(capsule).items()}
    take(engine, 40)
    pollute(engine)
    engine.restore(capsule)
    take(engine, 40)
    assert all((before[name] == buffer).all() for name, buffer in bits(capsule).items())
    assert capsule.capsule_bytes == sum(b.nbytes for b in before.values()) > 0
    with pytest.raises(TypeError):
        capsule.state["hidden"] = None
    with pytest.raises(TypeError):
        capsule.rows[0].buffers["kv"] = None


def test_a_capsule_holds_what_its_boundary_needs():
    """KV rows below the position, one anchor, the open window, the rows a convolution sees."""
    engine = make_drafted()
    fill(engine, PROMPT[:100])
    shapes = {name: b.shape for name, b in whole(engine.snapshot()).items()}
    assert shapes == {
        "anchor": (3, 4, 16, 16),
        "keys": (3, 36, 2, 16),
        "values": (3, 36, 4, 16),
        "decays": (3, 36, 4),
        "raw": (3, 3, 128),
        "kv": (1, 2, 2, 100, 32),
        "hidden": (64,),
        "mtp_kv": (2, 2, 99, 32),
    }


def test_engines_of_other_weights_or_dtypes_have_other_identities():
    """A capsule of one is not taken by another; the same weights are the same engine."""
    names = [
        make_engine(dtype=dtype, seed=seed).info.identity
        for dtype, seed in ((DTYPES[0], 0), (DTYPES[1], 0), (DTYPES[0], 1), (DTYPES[0], 0))
    ]
    assert len(set(names)) == 3
    assert names[0] == names[3]


@pytest.mark.parametrize("place", PLACES, ids=lambda place: f"{place[1]} {place[0]}")
def test_nothing_is_captured_once_an_engine_is_there(place):
    """Blocks of every size, rows, drafts, a restore."""
    engine = make_drafted(dtype=place[0], device=place[1], max_seq=512)
    for count in (1, 40, 100, 250):
        engine.reset()
        fill(engine, PROMPT[:count])
        capsule = engine.snapshot()
        take(engine, 20, SEEDED)
        engine.restore(capsule)
        take(engine, 9, attrs.evolve(SEEDED, draft_tokens=3))

    assert engine.graph_capture_count == 0


def test_a_step_that_fails_forgets_the_state(engine, other, monkeypatch):
    """Half a step may have moved buffers: nothing stays, and a capsule brings the session back."""
    fill(engine, PROMPT[:70])
    take(engine, 3, SEEDED)
    capsule = engine.snapshot()
    *_, wanted = path(engine, 5)
    other.restore(capsule)
    block = other._live.model.block

    def fails(ids, position):
        block(ids, position)
        raise RuntimeError("a kernel failed")

    monkeypatch.setattr(other._live.model, "block", fails)
    with pytest.raises(EngineFailed):
        fill(other, PROMPT[:80])
    assert (other.position, other.journal) == (0, ())
    monkeypatch.undo()
    other.restore(capsule)
    *_, last = path(other, 5)
    assert same_capsule(last, wanted)


def test_a_capsule_that_does_not_fit_leaves_nothing_half_restored(engine):
    """A buffer cut short on its way: an error, an empty engine, and the next prompt runs."""
    fill(engine, PROMPT[:100])
    capsule = engine.snapshot()
    short = {name: buffer[:, :-1] for name, buffer in capsule.state.items() if name != "hidden"}
    rows = capsule.rows[0]
    cut = {name: buffer[:, :, :-1] for name, buffer in rows.buffers.items()}
    for odd in (
        attrs.evolve(capsule, state={**capsule.state, **short}),
        attrs.evolve(capsule, rows=(attrs.evolve(rows, buffers=cut),)),
    ):
        with pytest.raises(EngineFailed):
            engine.restore(odd)
        assert (engine.position, engine.journal) == (0, ())
        fill(engine, PROMPT[:100])
        assert same_capsule(engine.snapshot(), capsule)


@pytest.mark.parametrize("mtp", [False, True], ids=["plain", "mtp"])
@pytest.mark.parametrize("shape", [Shape(), MIXTURE], ids=["dense", "mixture"])
def test_a_loaded_checkpoint_is_the_engine_of_its_tensors(tmp_path, shape, mtp):
    """Through the loader or made by hand: the same drafts and the same bytes of state."""
    model = reference(shape)
    model.save_pretrained(tmp_path)
    if mtp:
        parts = MtpReference(model).state_dict()
        named = {"mtp." + re.sub("^layer", "layers.0", name): t for name, t in parts.items()}
        save_file(named, tmp_path / "mtp.safetensors")
    loaded = HybridEngine.load(tmp_path, max_seq=512, draft_tokens_max=8, progress=False)
    by_hand = make_drafted(shape, mtp=mtp, max_seq=512)
    for one in (loaded, by_hand):
        fill(one, PROMPT[:100])
    pairs = zip(loaded.decode(SEEDED), by_hand.decode(SEEDED), strict=True)
    chunks = list(itertools.islice(pairs, 9))
    assert all(one == other for one, other in chunks)
    assert any(one.drafter == "mtp" for one, _ in chunks) == mtp
    assert same_capsule(loaded.snapshot(), by_hand.snapshot())
    assert (loaded.info.dtype, loaded.info.device) == ("float32", "cpu")


def test_a_window_too_large_for_memory_is_refused():
    """With the bytes that it would take."""
    model = reference()
    config = attrs.evolve(config_of(model), max_positions=2**50)
    with pytest.raises(CannotServe, match=r"needs .* GB of state on cpu"):
        HybridEngine(config, weights_of(model), max_seq=2**45, model_name="random")


@pytest.mark.parametrize("max_seq", [0, 1, 5000])
def test_a_window_that_the_model_does_not_have_is_refused(max_seq):
    """At start, with both numbers."""
    with pytest.raises(CannotServe, match=f"{max_seq}.*4096"):
        make_engine(max_seq=max_seq)


def test_an_open_generator_is_stale_once_another_is_begun(engine):
    """Two generators never take turns with one state."""
    fill(engine, PROMPT[:20])
    first = engine.decode(SEEDED)
    next(first)
    engine.decode(SEEDED)
    with pytest.raises(EngineMisuse):
        next(first)
