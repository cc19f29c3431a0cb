"""Where a prefill is cut: a pure function of the token ids (DESIGN: cuts are cold)."""

from collections.abc import Sequence

import attrs

CHUNK_GRID = 64
"""Cuts of the grid lie on multiples of this: one chunk of the anchored window."""


@attrs.frozen
class CutRule:
    """The rule of one server: a grid, and the two id sequences that bound a system turn.

    The sequences are None for a template that has no such thing; then there is only the grid.
    """

    chunk_tokens: int = attrs.field()
    system_open: tuple[int, ...] | None = None
    turn_end: tuple[int, ...] | None = None

    @chunk_tokens.validator
    def _on_the_grid(self, _attribute: object, value: int) -> None:
        if value < CHUNK_GRID or value % CHUNK_GRID:
            raise ValueError(f"chunk_tokens is {value}; it must be a positive multiple of 64")

    def cuts(self, ids: Sequence[int], position: int = 0) -> tuple[int, ...]:
        """All cuts of `ids` beyond `position`, rising, each inside (position, len(ids))."""
        points = set(range(self.chunk_tokens, len(ids), self.chunk_tokens))
        system_end = self.system_end(ids)
        if system_end is not None:
            points.add(system_end)
        return tuple(sorted(point for point in points if position < point < len(ids)))

    def system_end(self, ids: Sequence[int]) -> int | None:
        """The position behind the first turn's end, if the ids start with a system turn."""
        opening, ending = self.system_open, self.turn_end
        if not opening or not ending or tuple(ids[: len(opening)]) != opening:
            return None
        start = len(opening)
        while True:
            try:
                start = ids.index(ending[0], start)
            except ValueError:
                return None
            if tuple(ids[start : start + len(ending)]) == ending:
                return start + len(ending)
            start += 1

    def last_turn_end(self, ids: Sequence[int], reach: int) -> int | None:
        """The position behind the last turn's end, where the generation prompt begins.

        None: there is none, or it lies more than `reach` ids before the end.
        """
        ending = self.turn_end
        if not ending:
            return None
        lowest = max(0, len(ids) - reach - len(ending))
        for start in range(len(ids) - len(ending), lowest - 1, -1):
            if ids[start] == ending[0] and tuple(ids[start : start + len(ending)]) == ending:
                return start + len(ending)
        return None
