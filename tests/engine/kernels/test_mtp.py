"""The MTP layer by kernels and graphs."""

from collections.abc import Sequence

import pytest
import torch
from torch import Tensor

from flashrt.engine.kvcache import FP8, stored
from flashrt.engine.mtp import TorchMtpRows, likeliest
from flashrt.engine.selfcheck import same_bits
from tests.engine.drafted import make_drafted
from tests.engine.kernels.compare import distance
from tests.engine.models import MIXTURE, PLAIN, Shape, ids

from flashrt.engine.kernels.mtp import KernelMtpRows  # isort: skip

pytestmark = pytest.mark.gpu
DTYPES = pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
IDS = ids(150)
SLOTS = 40


def build(
    dtype: torch.dtype, shape: Shape = PLAIN, kv_dtype: torch.dtype | None = None
) -> KernelMtpRows:
    """Behind a prompt of all IDS, with nothing in the slots."""
    live = make_drafted(shape, dtype=dtype, kv_dtype=kv_dtype, device="cuda", max_seq=512)._live
    assert live.mtp is not None
    live.process_block(IDS)
    rows = live.mtp.rows
    assert isinstance(rows, KernelMtpRows)
    rows.step.layer.mixer.kv.zero_()
    return rows


def filled(rows: KernelMtpRows | TorchMtpRows, sizes: Sequence[int], kv: Tensor) -> Tensor:
    """Its K and V after SLOTS slots in groups of these sizes."""
    slot = turn = 0
    while slot < SLOTS:
        count = min(sizes[turn % len(sizes)], SLOTS - slot)
        rows.fill(IDS[slot + 1 : slot + 1 + count], slot)
        slot, turn = slot + count, turn + 1
    return kv.clone()


@torch.inference_mode()
@pytest.mark.parametrize("kv_dtype", [None, torch.float8_e4m3fn], ids=["own", "fp8"])
@DTYPES
def test_slots_have_their_bits_in_any_group(dtype: torch.dtype, kv_dtype: torch.dtype | None):
    """One by one, and in groups; what lies behind them is not touched."""
    wanted: Tensor | None = None
    for sizes in ([1], [16], [3, 5, 1, 7]):
        rows = build(dtype, kv_dtype=kv_dtype)
        kv = filled(rows, sizes, rows.step.layer.mixer.kv)
        wanted = kv if wanted is None else wanted
        assert kv.dtype == (kv_dtype or dtype)
        assert same_bits(kv, wanted), sizes
        assert not kv[:, :, SLOTS:].float().any()


@torch.inference_mode()
@DTYPES
def test_slots_of_8_bits_are_the_wide_ones_rounded(dtype: torch.dtype):
    """Filled in groups, and as part of a prompt block of the same hidden rows."""
    wide, narrow = (build(dtype, kv_dtype=kv_dtype) for kv_dtype in (None, FP8))
    ring = narrow.step.layer.model.buffers.hidden
    ring.copy_(wide.step.layer.model.buffers.hidden)
    hidden = ring[:SLOTS].clone()
    for how in ("groups", "block"):
        kept = []
        for rows in (wide, narrow):
            kv = rows.step.layer.mixer.kv
            kv.zero_()
            if how == "block":
                rows.block(IDS[1 : SLOTS + 1], hidden, 0)
            else:
                filled(rows, [16], kv)
            kept.append(kv.clone())
        assert same_bits(kept[1], stored(kept[0], FP8)), how


@torch.inference_mode()
@pytest.mark.parametrize(
    ("dtype", "shape"),
    # Rounded rows may choose other experts than the torch layer's.
    [(torch.float32, PLAIN), (torch.bfloat16, PLAIN), (torch.float32, MIXTURE)],
    ids=["float32", "bfloat16", "float32 mixture"],
)
def test_slots_and_drafts_equal_the_reference(dtype: torch.dtype, shape: Shape):
    """K and V against those of the torch layer over the same hidden rows, and the drafted ids."""
    rows = build(dtype, shape)
    kv = rows.step.layer.mixer.kv
    torch_rows = TorchMtpRows(rows.step.layer)
    seen: list[Tensor] = []

    def note(logits: Tensor, drafted: Sequence[int]) -> int:
        seen.append(logits.clone())
        return IDS[len(drafted)]

    ours = filled(rows, [16], kv)
    rows.draft((), SLOTS, IDS[SLOTS + 1], 3, note)
    kv.zero_()
    theirs = filled(torch_rows, [16], kv)
    torch_rows.draft((), SLOTS, IDS[SLOTS + 1], 3, note)

    assert distance(ours, theirs) < (1e-4 if dtype == torch.float32 else 0.03)
    for one, other in zip(seen[:3], seen[3:], strict=True):  # the head of drafts has 8 bits
        assert distance(one, other) < 0.06


@torch.inference_mode()
@pytest.mark.parametrize("count", [1, 31, 32, 33, 100, 130])
def test_a_block_fills_its_slots_and_no_other(count: int):
    """K and V against those of the torch layer over the same hidden rows, at any captured size."""
    rows = build(torch.bfloat16)
    kv = rows.step.layer.mixer.kv
    hidden = torch.randn(count, kv.shape[-1], dtype=kv.dtype, device=kv.device).repeat(
        1, rows.block_step.hidden.shape[1] // kv.shape[-1]
    )

    rows.block(IDS[1 : 1 + count], hidden, 7)
    ours = kv.clone()
    kv.zero_()
    TorchMtpRows(rows.step.layer).block(IDS[1 : 1 + count], hidden, 7)

    assert distance(ours, kv) < 0.02
    assert not ours[:, :, :7].any()
    assert not ours[:, :, 7 + count :].any()


@torch.inference_mode()
@DTYPES
@pytest.mark.parametrize("shape", [PLAIN, MIXTURE], ids=["dense", "mixture"])
def test_likeliest_drafts_need_no_host_between_them(dtype: torch.dtype, shape: Shape):
    """The same ids and slots as by choosing each on the host."""
    rows = build(dtype, shape)
    kv = filled(rows, [16], rows.step.layer.mixer.kv)

    quick = rows.draft((), SLOTS, IDS[SLOTS + 1], 5, likeliest)
    after = rows.step.layer.mixer.kv.clone()
    rows.step.layer.mixer.kv.copy_(kv)
    slow = rows.draft((), SLOTS, IDS[SLOTS + 1], 5, lambda logits, _: int(logits.argmax()))

    assert quick == slow
    assert len(quick) == 5
    assert torch.equal(rows.step.layer.mixer.kv, after)


@torch.inference_mode()
def test_a_slot_that_drafts_has_the_bits_of_one_that_is_filled():
    """So it does not matter which of the two wrote it first."""
    rows = build(torch.bfloat16)
    kv = filled(rows, [16], rows.step.layer.mixer.kv)
    kv.zero_()

    rows.draft((), 5, IDS[6], 1, likeliest)
    drafted = rows.step.layer.mixer.kv[:, :, 5].clone()
    rows.fill(IDS[6:7], 5)

    assert torch.equal(rows.step.layer.mixer.kv[:, :, 5], drafted)


@torch.inference_mode()
def test_drafting_fills_what_waits_first():
    """In one go: the slots, bits and ids of filling and then drafting."""
    one, other = build(torch.bfloat16), build(torch.bfloat16)
    kvs = [rows.step.layer.mixer.kv for rows in (one, other)]

    together = one.draft(IDS[1:6], 0, IDS[6], 3, likeliest)
    other.fill(IDS[1:6], 0)
    apart = other.draft((), 5, IDS[6], 3, likeliest)

    assert together == apart
    assert torch.equal(*kvs)
