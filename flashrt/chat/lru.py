"""A cache that is bounded by its bytes."""

import threading
from collections import OrderedDict
from collections.abc import Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class ByteLru(Generic[K, V]):
    """Least recently used first out. Safe to use from several threads."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._bytes = 0
        self._known: OrderedDict[K, tuple[V, int]] = OrderedDict()
        self._lock = threading.Lock()

    @property
    def held_bytes(self) -> int:
        """What it holds."""
        return self._bytes

    def get(self, key: K) -> V | None:
        """What is kept under `key`; it is the newest now."""
        with self._lock:
            found = self._known.get(key)
            if found is None:
                return None
            self._known.move_to_end(key)
            return found[0]

    def keep(self, key: K, value: V, size_bytes: int) -> V:
        """Keep `value` unless there is one of that key, or it is too large; the one to use."""
        with self._lock:
            found = self._known.get(key)
            if found is not None:
                return found[0]
            if size_bytes <= self._bytes_max:
                self._known[key] = (value, size_bytes)
                self._bytes += size_bytes
            while self._bytes > self._bytes_max:
                _, (_, oldest_bytes) = self._known.popitem(last=False)
                self._bytes -= oldest_bytes
        return value
