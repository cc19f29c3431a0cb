"""A prompt: canonical token ids that also carry the segments they were made of."""

import sys
from array import array
from collections.abc import Iterable, Iterator, Sequence
from typing import overload

import attrs

from flashrt.chat.outline import Outline

CONTROL = "control:"
"""How the keys of control tokens begin."""

ID_TYPE, ID_BYTES = "i", 4

OBJECT_BYTES, PLACE_BYTES, PART_BYTES = 250, 8, 250
"""Of Python's objects: a segment with its place in a cache, beside its texts and ids; a place in a
prompt; and a part of an outline, beside its texts."""


def _packed(ids: Iterable[int]) -> bytes:
    return ids if isinstance(ids, bytes) else array(ID_TYPE, ids).tobytes()


class PackedIds(Sequence[int]):
    """Ids held in 4 bytes each: what is long and comes with every turn is not made into objects."""

    packed: bytes

    @property
    def ids(self) -> tuple[int, ...]:
        """All of them, made anew at each call."""
        return tuple(array(ID_TYPE, self.packed))

    @overload
    def __getitem__(self, index: int) -> int: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[int, ...]: ...
    def __getitem__(self, index: int | slice) -> int | tuple[int, ...]:
        found = self._view[index]
        return found if isinstance(found, int) else tuple(found)

    def __len__(self) -> int:
        return len(self.packed) // ID_BYTES

    def __iter__(self) -> Iterator[int]:
        return iter(self._view)

    @property
    def _view(self) -> "memoryview[int]":
        return memoryview(self.packed).cast("i")

    def index(self, value: int, start: int = 0, stop: int | None = None) -> int:
        """Where an id stands first, as of a tuple."""
        start, stop, _ = slice(start, stop).indices(len(self))
        wanted, end = _packed([value]), stop * ID_BYTES
        at = self.packed.find(wanted, start * ID_BYTES, end)
        while at % ID_BYTES and at >= 0:
            at = self.packed.find(wanted, at + 1, end)
        if at < 0:
            raise ValueError(f"{value} is not in these ids")
        return at // ID_BYTES


@attrs.frozen
class Segment:
    """A piece of a rendered prompt between two control tokens, or one control token.

    `key` names the content: equal keys mean equal ids. `text` is the piece as it was rendered.
    `packed` holds the ids as the engine packs them, 4 bytes each: as Python's numbers they would
    take ten times as much. `size_bytes`: all that it holds.
    """

    key: str
    packed: bytes = attrs.field(alias="ids", converter=_packed)
    text: str = attrs.field(default="", repr=False)
    size_bytes: int = attrs.field(init=False, eq=False, repr=False)

    @size_bytes.default
    def _size(self) -> int:
        texts = sys.getsizeof(self.key) + sys.getsizeof(self.text)
        return OBJECT_BYTES + texts + sys.getsizeof(self.packed)

    @property
    def ids(self) -> tuple[int, ...]:
        """The ids, made anew at each call."""
        return tuple(array(ID_TYPE, self.packed))

    @property
    def token_count(self) -> int:
        """How many ids it has."""
        return len(self.packed) // ID_BYTES

    @property
    def is_control(self) -> bool:
        """Whether this is a control token that the template wrote."""
        return self.key.startswith(CONTROL)


@attrs.frozen(eq=False)
class Wording:
    """What a prompt says, without its ids: what must be kept to tell how a later one differs.

    A prompt without an outline is not compared, so nothing is kept of it.
    """

    segments: tuple[Segment, ...] = ()
    outline: Outline | None = None

    @property
    def size_bytes(self) -> int:
        """What it holds, also what it shares with other conversations."""
        if self.outline is None:
            return 0
        # A control token is the vocabulary's own, and a piece that comes again is held once.
        held = {s.key: s.size_bytes for s in self.segments if not s.is_control}
        size = PLACE_BYTES * len(self.segments) + sum(held.values())
        size += sum(map(sys.getsizeof, attrs.astuple(self.outline.head)))
        for part in self.outline.parts:
            texts = (part.key, part.reasoning, part.content, part.calls)
            size += PART_BYTES + sum(map(sys.getsizeof, texts))
        return size

    def until(self, messages: int) -> "Wording":
        """What its first `messages` said, an answer at their end included."""
        if self.outline is None:
            return self
        parts = tuple(p for p in self.outline.parts if 0 <= p.first_message < messages)
        stop = parts[-1].stop_segment if parts else 0
        return Wording(self.segments[:stop], Outline(parts, messages, self.outline.head))


@attrs.frozen(eq=False)
class Prompt(PackedIds):
    """The canonical ids of one request, as a sequence, and the segments behind them.

    `opens_thinking`: the generation prompt left a think block open, so the answer starts in it.
    `outline` is None for bare ids and text, and where the template's turns are not recognised.
    """

    packed: bytes = attrs.field(alias="ids", converter=_packed, repr=False)
    segments: tuple[Segment, ...]
    opens_thinking: bool = False
    outline: Outline | None = None

    @classmethod
    def from_segments(
        cls,
        segments: Sequence[Segment],
        *,
        opens_thinking: bool = False,
        outline: Outline | None = None,
    ) -> "Prompt":
        """Join segments; they follow each other without a gap."""
        packed = b"".join([segment.packed for segment in segments])
        return cls(packed, tuple(segments), opens_thinking, outline)

    @classmethod
    def from_ids(cls, ids: Sequence[int]) -> "Prompt":
        """An id prompt is one segment."""
        ids = tuple(ids)
        return cls(ids, (Segment(key=f"ids:{hash(ids):x}", ids=ids),))

    @property
    def wording(self) -> Wording:
        """What to keep of it for a comparison."""
        return Wording() if self.outline is None else Wording(self.segments, self.outline)
