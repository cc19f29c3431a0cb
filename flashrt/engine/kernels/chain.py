"""Kernels that begin while the one before them ends (programmatic dependent launch).

A pass of few rows is hundreds of kernels that each run for microseconds, so what a launch takes
counts. A kernel launched with FOLLOWING is brought up on the device while the one before it still
runs, from when all programs of that have called `let_follow` or are over. It must `wait` first,
until all of the kernel before is done and visible: so nothing but constants may be read before the
call, and nothing written.
"""

import torch
import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

CAN_FOLLOW = torch.cuda.is_available() and torch.cuda.get_device_capability() >= (9, 0)
"""The instructions are there from Hopper on."""

FOLLOWING = {"launch_pdl": True} if CAN_FOLLOW else {}
"""Options of a launch."""

_CAN_FOLLOW = tl.constexpr(CAN_FOLLOW)


@triton.jit
def wait():
    """Until the kernel before is done."""
    if _CAN_FOLLOW:
        gdc_wait()


@triton.jit
def let_follow():
    """Let the next kernel come up. Of a kernel with many programs, late: programs that only wait
    take the place of some that would read."""
    if _CAN_FOLLOW:
        gdc_launch_dependents()


@triton.jit
def follow():
    """Both, for a kernel that is over at once."""
    let_follow()
    wait()
