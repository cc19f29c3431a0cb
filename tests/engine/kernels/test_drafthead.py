"""The head of drafts."""

import pytest
import torch

from flashrt.engine.matrix import Packed
from tests.engine.kernels.compare import CUDA, distance, noise
from tests.engine.kernels.packs import FORMS

from flashrt.engine.kernels.drafthead import DraftHead, PackedHead, draft_head  # isort: skip
from flashrt.engine.kernels.linear import head_linear  # isort: skip

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize("shape", [(61, 64), (8256, 128), (20000, 5120)], ids=str)
def test_logits_are_those_of_the_rounded_matrix(shape: tuple[int, int]):
    """The kernel adds nothing to what rounding to 8 bits costs, and that is little."""
    weight = noise(*shape, dtype=torch.bfloat16) * 0.02
    hidden = noise(1, shape[1], seed=1, dtype=torch.bfloat16)
    head = DraftHead.of(weight)

    got = head.logits(hidden)

    rounded = head.weight.double() * head.scale.double()[:, None]
    assert distance(got, hidden.double() @ rounded.T) < 1e-3
    assert distance(got, hidden.double() @ weight.double().T) < 0.05


def test_a_row_of_zeros_stays_one():
    """No division by its largest value."""
    head = DraftHead.of(torch.zeros(16, 32, dtype=torch.bfloat16, device=CUDA))

    assert not head.logits(noise(1, 32, dtype=torch.bfloat16)).any()


@pytest.mark.parametrize("name", FORMS)
def test_a_packed_head_drafts_by_its_own_logits(name: str):
    """Bit for bit, and without a copy."""
    head = Packed((FORMS[name](8256, 256),), torch.bfloat16)
    hidden = noise(1, 256, dtype=torch.bfloat16)

    drafting = draft_head(head)

    assert isinstance(drafting, PackedHead)
    assert drafting.weight is head
    assert torch.equal(drafting.logits(hidden), head_linear(hidden, head))
