"""The C library's allocator, asked to give back what is free."""

import ctypes


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
