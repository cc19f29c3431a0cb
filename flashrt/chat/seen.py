"""What a client sends again with every turn: equal values are read once, and are one object then.

So a long history is told from an earlier one by the identity of its messages.
"""

import hashlib
import marshal
import sys
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import attrs

from flashrt.chat.lru import ByteLru

T = TypeVar("T")

EXACT = 2
"""The format of marshal in which equal values are equal bytes: later ones refer to what they have
written already, which depends on who else holds it."""

VALUE_BYTES = 250
"""Of Python's objects: a value's name and its place in the cache."""


@attrs.frozen(eq=False)
class _Known:
    """A value, and what `ask` said of it."""

    value: Any
    answer: bool


class Seen:
    """Values as they were read first. Safe to use from several threads."""

    def __init__(self, ask: Callable[[Any], bool], bytes_max: int) -> None:
        """`ask` decides about a value by its content alone."""
        self._ask = ask
        self._known: ByteLru[bytes, _Known] = ByteLru(bytes_max)

    @property
    def held_bytes(self) -> int:
        """What is kept."""
        return self._known.held_bytes

    def reading(self) -> "Reading":
        """For the values of one request."""
        return Reading(self)

    def known(self, sent: T, reader: Callable[[], T]) -> _Known:
        """What `reader` makes of `sent`, with the answer."""
        name = _name(sent)
        known = None if name is None else self._known.get(name)
        if known is None:
            value = reader()
            known = _Known(value, self._ask(value))
            if name is not None:
                known = self._known.keep(name, known, _size(value))
        return known


class Reading:
    """Reads the values of one request. Those given out are shared: nobody may change them.

    `asked`: whether the answer to `ask` was yes for one of them.
    """

    def __init__(self, seen: Seen) -> None:
        self._seen = seen
        self.asked = False

    def read(self, sent: T, reader: Callable[[], T]) -> T:
        """What `reader` makes of `sent`, which is JSON and all that it looks at."""
        known = self._seen.known(sent, reader)
        self.asked = self.asked or known.answer
        value: T = known.value
        return value

    def same(self, value: T) -> T:
        """The value of equal content that was seen first."""
        return self.read(value, lambda: value)


def _name(value: Any) -> bytes | None:
    """Types and the order of keys count. None: it is no JSON."""
    try:
        written = marshal.dumps(value, EXACT)
    except ValueError:
        return None
    return hashlib.blake2b(written, digest_size=16).digest()


def _size(value: Any) -> int:
    """About what a value holds. Goes down level by level, since it must not recurse itself."""
    size, level = VALUE_BYTES, [value]
    while level:
        size += sum(map(sys.getsizeof, level))
        level = [inner for outer in level for inner in _inside(outer)]
    return size


def _inside(value: Any) -> Sequence[Any]:
    if isinstance(value, dict):
        return [*value, *value.values()]
    return value if isinstance(value, list | tuple) else ()
