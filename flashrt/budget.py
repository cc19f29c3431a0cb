"""How much memory saved states may hold: pure arithmetic over what is free."""

MIB = 1 << 20

CPU_SHARE, CPU_MOST = 4, 8 << 30
"""A quarter of the free memory, and no more than this: others use the machine too."""

HOST_SHARE, HOST_MOST = 2, 64 << 30
"""Beside a GPU: half of the free host memory, and no more than this: it is pinned, which takes its
time at start, and no other program gets it back."""

DISK_SHARE, DISK_MOST = 2, 64 << 30
"""Half of what is free where the files are, and no more than this."""

CUDA_MARGIN_LEAST = 1 << 30
"""What is left free of a GPU beside the memory of a step: allocators and libraries cannot use
every byte."""


def capsule_budget_bytes(
    wish_mib: int, *, free_bytes: int, on_gpu: bool, step_bytes: int = 0
) -> int:
    """The budget: the wish, or for a negative one what is reasonable; never below 0.

    `step_bytes`: what the longest step of the engine takes beside all that is there already.
    """
    if wish_mib >= 0:
        return wish_mib * MIB
    if not on_gpu:
        return min(free_bytes // CPU_SHARE, CPU_MOST)
    return max(0, free_bytes - step_bytes - CUDA_MARGIN_LEAST)


def host_budget_bytes(wish_mib: int, *, free_bytes: int, on_gpu: bool) -> int:
    """Of the host's memory. On a CPU the engine's memory is the host's: nothing, unless wished."""
    if wish_mib >= 0:
        return wish_mib * MIB
    return min(free_bytes // HOST_SHARE, HOST_MOST) // MIB * MIB if on_gpu else 0


def disk_budget_bytes(wish_mib: int, *, free_bytes: int, held_bytes: int) -> int:
    """Of a directory; `held_bytes`: what lies there already, which is free for it to use."""
    if wish_mib >= 0:
        return wish_mib * MIB
    return min((free_bytes + held_bytes) // DISK_SHARE, DISK_MOST)
