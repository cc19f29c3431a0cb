"""Capsules made by hand, with rows that are shared as an engine would share them."""

from collections.abc import Sequence

from flashrt.engine.protocol import Capsule, RowBlock, pack_ids

STATE_BYTES, ROW_BYTES = 100, 10


class Maker:
    """Makes capsules of token lists; rows of a beginning that a given capsule holds are shared."""

    def make(
        self, ids: Sequence[int], like: Capsule | None = None, pending: int | None = None
    ) -> Capsule:
        rows: tuple[RowBlock, ...] = ()
        if like is not None:
            assert tuple(ids[: like.position]) == like.tokens[: like.position]
            rows = like.rows
        start = rows[-1].stop if rows else 0
        if start < len(ids):
            new = ids[start:]
            rows = (*rows, RowBlock(start, pack_ids(new), {}, ROW_BYTES * len(new)))
        return Capsule(len(ids), pending, "made", {}, STATE_BYTES, rows)
