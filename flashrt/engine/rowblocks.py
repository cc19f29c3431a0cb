"""Which blocks of rows the live state is equal to: capsules share them, a restore skips them."""

import weakref
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import attrs

from flashrt.engine.protocol import RowBlock, pack_ids


@attrs.frozen
class EqualRows:
    """The live rows [block.start, stop) are those of the block, as long as anybody holds it."""

    block: weakref.ref[RowBlock]
    stop: int


@attrs.define(eq=False)
class LiveRows:
    """Blocks that follow each other from 0, each equal to the live rows as far as noted.

    Only weak references: a block lives as long as a capsule that refers to it. Rows are written
    behind the newest position only, so whoever takes the position back must `cut` here.
    """

    _equal: list[EqualRows] = attrs.field(factory=list)

    def clear(self) -> None:
        """Nothing is known of the live rows."""
        self._equal.clear()

    def cut(self, position: int) -> None:
        """Rows from `position` on may be overwritten. Every step says so; mostly none is there."""
        if not self._equal or self._equal[-1].stop <= position:
            return
        self._equal = [attrs.evolve(equal, stop=min(equal.stop, position)) for equal in self._equal]

    def hold(self, rows: Sequence[RowBlock], position: int) -> None:
        """The live rows [0, position) are those of `rows`."""
        self._equal = [EqualRows(weakref.ref(row), min(row.stop, position)) for row in rows]

    def shared(self, position: int) -> tuple[RowBlock, ...]:
        """The living blocks that a capsule of `position` may refer to.

        A block that is equal in part only can be the last one of a capsule, never one before it.
        """
        blocks: list[RowBlock] = []
        for equal in self._equal:
            block = equal.block()
            if block is None or block.start >= position or equal.stop < min(block.stop, position):
                break
            blocks.append(block)
        return tuple(blocks)

    def missing(self, position: int) -> int:
        """The first row that a capsule of `position` must copy; at least `position`: none."""
        shared = self.shared(position)
        return shared[-1].stop if shared else 0

    def covering(
        self, position: int, ids: Sequence[int], save: Callable[[int, int], Mapping[str, Any]]
    ) -> tuple[RowBlock, ...]:
        """Blocks for [0, position); `save(start, stop)` copies the rows that no block holds."""
        shared = self.shared(position)
        start = shared[-1].stop if shared else 0
        if start >= position:
            return shared
        buffers = save(start, position)
        size = sum(buffer.nbytes for buffer in buffers.values())
        packed = pack_ids(ids[start:position])
        rows = (*shared, RowBlock(start, packed, MappingProxyType(dict(buffers)), size))
        self.hold(rows, position)
        return rows

    def kept(self, rows: Sequence[RowBlock], position: int) -> int:
        """How many of the first `rows` of a capsule of `position` the live rows are equal to."""
        count = 0
        for row, equal in zip(rows, self._equal, strict=False):
            if equal.block() is not row or equal.stop < min(row.stop, position):
                break
            count += 1
        return count

    def equal_to(self, block: RowBlock) -> bool:
        """Whether the live rows are known to be those of the whole block."""
        return any(e.block() is block and e.stop >= block.stop for e in self._equal)
