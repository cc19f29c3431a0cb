"""A prompt: canonical token ids that also carry the segments they were made of."""

from array import array
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import overload

import attrs

from flashrt.chat.outline import Outline

CONTROL = "control:"
"""How the keys of control tokens begin."""


@attrs.frozen
class Segment:
    """A piece of a rendered prompt between two control tokens, or one control token.

    `key` names the content: equal keys mean equal ids. `text` is the piece as it was rendered.
    `packed` holds the ids as the engine packs them, 4 bytes each.
    """

    key: str
    ids: tuple[int, ...]
    text: str = attrs.field(default="", repr=False)
    packed: bytes = attrs.field(init=False, eq=False, repr=False)

    @packed.default
    def _pack(self) -> bytes:
        return _packed(self.ids)

    @property
    def is_control(self) -> bool:
        """Whether this is a control token that the template wrote."""
        return self.key.startswith(CONTROL)


@attrs.frozen(eq=False)
class Prompt(Sequence[int]):
    """The canonical ids of one request, as a sequence, and the segments behind them.

    `opens_thinking`: the generation prompt left a think block open, so the answer starts in it.
    `outline` is None for bare ids and text, and where the template's turns are not recognised.
    """

    ids: tuple[int, ...]
    segments: tuple[Segment, ...]
    opens_thinking: bool = False
    outline: Outline | None = None
    packed: bytes = attrs.field(init=False, repr=False)

    @packed.default
    def _pack(self) -> bytes:
        if not self.segments:
            return _packed(self.ids)
        return b"".join(segment.packed for segment in self.segments)

    @classmethod
    def from_segments(
        cls,
        segments: Sequence[Segment],
        *,
        opens_thinking: bool = False,
        outline: Outline | None = None,
    ) -> "Prompt":
        """Join segments; they follow each other without a gap."""
        ids = tuple(chain.from_iterable(segment.ids for segment in segments))
        return cls(ids, tuple(segments), opens_thinking, outline)

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


def _packed(ids: Sequence[int]) -> bytes:
    return array("i", ids).tobytes()
