"""The capsules' share of the memory."""

import pytest

from flashrt.budget import capsule_budget_bytes

GIB = 1 << 30


@pytest.mark.parametrize("on_gpu", [False, True])
@pytest.mark.parametrize("wish", [0, 1, 4096])
def test_a_wish_is_taken_as_it_is(wish, on_gpu):
    """Nothing means nothing."""
    assert capsule_budget_bytes(wish, free_bytes=GIB, on_gpu=on_gpu) == wish << 20


@pytest.mark.parametrize(
    ("free", "on_gpu", "want"),
    [
        (4 * GIB, False, GIB),
        (400 * GIB, False, 8 * GIB),
        (0, False, 0),
        (80 * GIB, True, 72 * GIB),
        (10 * GIB, True, 8 * GIB),
        (GIB, True, 0),
    ],
)
def test_auto_leaves_memory_for_others(free, on_gpu, want):
    """A quarter of a CPU's, at most 8 GiB; of a GPU's all but a margin."""
    assert capsule_budget_bytes(-1, free_bytes=free, on_gpu=on_gpu) == want
