"""What a state stands for: its ids as they grow, how many are processed, how it was built."""

import sys
from array import array
from collections.abc import Sequence

import attrs

from flashrt.engine.protocol import ID_BYTES, ID_TYPE
from flashrt.policy.lineage import Lineage, cut, with_block, with_decoded

SPAN_BYTES = 200
"""Of Python's objects: a span of a lineage, with its numbers and what it was cut off from."""


def _written(ids: Sequence[int] = ()) -> "array[int]":
    return array(ID_TYPE, ids)


@attrs.define(eq=False)
class Journal:
    """The ids of one state: `processed` of them in the state, and at most one pending.

    Sessions keep their journals for long, so the ids are held in 4 bytes each.
    """

    ids: "array[int]" = attrs.field(factory=_written, converter=_written)
    processed: int = 0
    lineage: Lineage = ()

    @classmethod
    def of(cls, ids: Sequence[int], processed: int, lineage: Lineage) -> "Journal":
        """A journal that can be written on, with copies of these."""
        return cls(ids, processed, lineage)

    @property
    def packed(self) -> bytes:
        """The ids as bytes (see `pack_ids`): so, long lists compare quickly. A copy."""
        return self.ids.tobytes()

    @property
    def size_bytes(self) -> int:
        """What it holds."""
        return sys.getsizeof(self.ids) + SPAN_BYTES * len(self.lineage)

    @property
    def pending(self) -> tuple[int, ...]:
        """The id that is not processed yet, if there is one."""
        return tuple(self.ids[self.processed :])

    def copy(self) -> "Journal":
        """The same, to be written on apart."""
        return Journal(self.ids, self.processed, self.lineage)

    def heads(self, packed: bytes) -> bool:
        """Whether every processed id is that of `packed` at the same place."""
        size = self.processed * ID_BYTES
        return self.packed[:size] == packed[:size]

    def drop_pending(self) -> None:
        """Only processed ids stay."""
        del self.ids[self.processed :]

    def feed(self, ids: Sequence[int]) -> None:
        """One prefill block has processed `ids`; a pending id was dropped first."""
        self.drop_pending()
        self._extend(ids)
        self.processed = len(self.ids)
        self.lineage = with_block(self.lineage, self.processed)

    def sample(self, ids: Sequence[int]) -> None:
        """Decode has given `ids`; it has processed all but the newest."""
        self._extend(ids)
        self.processed = len(self.ids) - 1
        self.lineage = with_decoded(self.lineage, self.processed)

    def roll_back(self, count: int) -> None:
        """The newest `count` ids are dropped; the newest of those left is pending."""
        length = len(self.ids) - count
        self.lineage = cut(self.lineage, length - 1, self.ids)
        del self.ids[length:]
        self.processed = length - 1

    def lineage_at(self, length: int) -> Lineage:
        """How the state was built that stands at `length` processed ids."""
        return cut(self.lineage, length, self.ids)

    def _extend(self, ids: Sequence[int]) -> None:
        self.ids.extend(ids)


def common_length(first: bytes | bytearray, second: bytes | bytearray) -> int:
    """How many ids two packed lists have in common from their beginning on."""
    low, high = 0, min(len(first), len(second)) // ID_BYTES
    if first[: high * ID_BYTES] == second[: high * ID_BYTES]:
        return high
    while high - low > 1:  # [0, low) is equal, [0, high) is not
        middle = (low + high) // 2
        part = slice(low * ID_BYTES, middle * ID_BYTES)
        low, high = (middle, high) if first[part] == second[part] else (low, middle)
    return low
