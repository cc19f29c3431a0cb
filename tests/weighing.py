"""What Python really allocates for something, to hold a count of bytes against."""

import gc
import tracemalloc
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def weighed(make: Callable[[], T]) -> tuple[T, int]:
    """What `make` gives, and the bytes that are allocated for it and still held."""
    gc.collect()
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        made = make()
        gc.collect()
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    return made, after - before
