"""A prompt: canonical token ids that also carry the segments they were made of."""

from collections.abc import Iterator, Sequence
from itertools import chain
from typing import overload

import attrs


@attrs.frozen
class Segment:
    """A piece of a rendered prompt between two control tokens, or one control token.

    `key` names the content: equal keys mean equal ids.
    """

    key: str
    ids: tuple[int, ...]


@attrs.frozen(eq=False)
class Prompt(Sequence[int]):
    """The canonical ids of one request, as a sequence, and the segments behind them.

    `opens_thinking`: the generation prompt left a think block open, so the answer starts in it.
    """

    ids: tuple[int, ...]
    segments: tuple[Segment, ...]
    opens_thinking: bool = False

    @classmethod
    def from_segments(
        cls, segments: Sequence[Segment], *, opens_thinking: bool = False
    ) -> "Prompt":
        """Join segments; they follow each other without a gap."""
        ids = tuple(chain.from_iterable(segment.ids for segment in segments))
        return cls(ids, tuple(segments), opens_thinking)

    @classmethod
    def from_ids(cls, ids: Sequence[int]) -> "Prompt":
        """An id prompt is one segment."""
        ids = tuple(ids)
        return cls(ids, (Segment(key=f"ids:{hash(ids):x}", ids=ids),))

    @overload
    def __getitem__(self, index: int) -> int: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[int, ...]: ...
    def __getitem__(self, index: int | slice) -> int | tuple[int, ...]:
        return self.ids[index]

    def __len__(self) -> int:
        return len(self.ids)

    def __iter__(self) -> Iterator[int]:
        return iter(self.ids)
