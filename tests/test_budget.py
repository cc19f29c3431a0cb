"""The capsules' share of the memory."""

import pytest

from flashrt.budget import capsule_budget_bytes, disk_budget_bytes, host_budget_bytes

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
        (80 * GIB, True, 76 * GIB),
        (10 * GIB, True, 6 * GIB),
        (3 * GIB, True, 0),
    ],
)
def test_auto_leaves_memory_for_others(free, on_gpu, want):
    """A quarter of a CPU's, at most 8 GiB; of a GPU's all but what a step takes, and a margin."""
    step = 3 * GIB
    assert capsule_budget_bytes(-1, free_bytes=free, on_gpu=on_gpu, step_bytes=step) == want


@pytest.mark.parametrize(
    ("wish", "free", "on_gpu", "want"),
    [
        (-1, 100 * GIB, True, 50 * GIB),
        (-1, 400 * GIB, True, 64 * GIB),
        (-1, 100 * GIB, False, 0),
        (0, GIB, True, 0),
    ],
)
def test_the_hosts_memory_is_a_tier_beside_a_gpu(wish, free, on_gpu, want):
    """Half of it, at most 64 GiB; on a CPU it is the engine's own."""
    assert host_budget_bytes(wish, free_bytes=free, on_gpu=on_gpu) == want
    assert host_budget_bytes(7, free_bytes=free, on_gpu=on_gpu) == 7 << 20


def test_a_directory_may_use_again_what_it_holds():
    """Half of what would be free without it; a wish is taken as it is."""
    assert disk_budget_bytes(-1, free_bytes=30 * GIB, held_bytes=10 * GIB) == 20 * GIB
    assert disk_budget_bytes(-1, free_bytes=900 * GIB, held_bytes=0) == 64 * GIB
    assert disk_budget_bytes(3, free_bytes=0, held_bytes=0) == 3 << 20
