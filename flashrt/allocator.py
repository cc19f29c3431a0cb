"""The two allocators, asked for what a long-lived process wants of them."""

import ctypes
import gc


def give_back() -> bool:
    """Return free pages of the heap to the system; whether there were any. Takes milliseconds.

    By itself glibc gives back only what is free at a heap's end. Saved states come and go in blocks
    of all sizes, and small blocks that stay keep the holes between them for good. (A fixed
    `M_MMAP_THRESHOLD` would do as well, but then the system clears the pages of every larger
    tensor of a prefill: measured at 1.7 times the processor time, for 3,000 tokens of the demo
    checkpoint.) A C library without `malloc_trim` is left as it is.
    """
    try:
        trim = ctypes.CDLL(None).malloc_trim
    except AttributeError:
        return False
    return bool(trim(0))


def settle() -> None:
    """Take what is there for good out of Python's collections of garbage. To be called once, when
    everything is loaded.

    The libraries alone make a quarter of a million objects. A full collection goes through them
    all, and stops every thread for as long: 250 ms here, in the middle of whatever is served.
    """
    gc.collect()
    gc.freeze()
