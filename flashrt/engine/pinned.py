"""Takes host memory that the device copies from and to by itself: pinned, once, at start.

Pinning costs by the page, so pages are asked for large and are there before the driver sees them;
and it goes piece by piece, so that a system which does not give all of it gives what it has.
"""

import contextlib
import logging
import mmap
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from tqdm import tqdm

from flashrt.engine.placement import free_bytes

log = logging.getLogger("flashrt")

PIECE_BYTES = 1 << 30

LEFT_FREE_BYTES = 1 << 30
"""Of the host's memory, whatever is asked for: a system without any ends processes."""

PORTABLE = 1
"""cudaHostRegisterPortable: pinned for every device of the process."""


def pinned_pieces(size_bytes: int, device: torch.device) -> list[np.ndarray]:
    """Memory pinned for a CUDA device, at most `size_bytes`: less where the system has no more.

    Shows how far it is.
    """
    pieces: list[np.ndarray] = []
    with (
        torch.cuda.device(device),
        tqdm(total=size_bytes, unit="B", unit_scale=True, desc="pinning", leave=False) as bar,
    ):
        for piece in taken(size_bytes, _pin):
            pieces.append(piece)
            bar.update(len(piece))
    return pieces


def taken(size_bytes: int, pin: Callable[[np.ndarray], None]) -> Iterator[np.ndarray]:
    """Pieces whose pages are there and pinned; ends early, with a line in the log, at what is not
    to be had. `pin` raises RuntimeError."""
    while size_bytes > 0:
        size = min(size_bytes, PIECE_BYTES)
        free = free_bytes("cpu")
        if free < size + LEFT_FREE_BYTES:
            log.warning("%d MiB of host memory are free: no more is pinned", free >> 20)
            return
        try:
            piece = _there(size)
            pin(piece)
        except (OSError, MemoryError, RuntimeError) as error:
            log.warning("%d MiB more of host memory cannot be pinned: %s", size >> 20, error)
            return
        yield piece
        size_bytes -= size


def _there(size: int) -> np.ndarray:
    """Anonymous memory whose pages exist, zeros."""
    memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    for advice in (mmap.MADV_HUGEPAGE, mmap.MADV_DONTFORK):
        with contextlib.suppress(OSError):  # a kernel may know neither
            memory.madvise(advice)
    piece = np.frombuffer(memory, np.uint8)
    torch.from_numpy(piece)[:: mmap.PAGESIZE].zero_()  # by all threads
    return piece


def _pin(piece: np.ndarray) -> None:
    """Until nobody refers to it. Raises RuntimeError."""
    runtime: Any = torch.cuda.cudart()
    address = piece.ctypes.data
    code = int(runtime.cudaHostRegister(address, len(piece), PORTABLE))
    if code:
        with contextlib.suppress(RuntimeError):  # the error stands until somebody has asked for it
            torch.zeros(1, device="cuda")
        torch.cuda.check_error(code)
    weakref.finalize(piece, runtime.cudaHostUnregister, address).atexit = False
