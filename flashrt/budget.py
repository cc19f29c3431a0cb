"""How much memory saved states may hold: pure arithmetic over what is free."""

MIB = 1 << 20

CPU_SHARE, CPU_MOST = 4, 8 << 30
"""A quarter of the free memory, and no more than this: others use the machine too."""

CUDA_MARGIN_SHARE, CUDA_MARGIN_LEAST = 10, 2 << 30
"""What is left free of a GPU: a tenth, and no less than this, for what a step needs by itself."""


def capsule_budget_bytes(wish_mib: int, *, free_bytes: int, on_gpu: bool) -> int:
    """The budget: the wish, or for a negative one what is reasonable; never below 0."""
    if wish_mib >= 0:
        return wish_mib * MIB
    if not on_gpu:
        return min(free_bytes // CPU_SHARE, CPU_MOST)
    margin = max(free_bytes // CUDA_MARGIN_SHARE, CUDA_MARGIN_LEAST)
    return max(0, free_bytes - margin)
