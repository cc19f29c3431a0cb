"""Exact replay: a conversation that comes back is read with the ids that were used the first time.

What a client sends back of an answer is text; the ids behind it were sampled, and the template
would write them otherwise (key order, blanks, an empty think block, thinking that the client
dropped). So each place where an answer ended, and each system turn, is remembered by a digest over
all that a client sees up to there. Of a prompt that begins with such a place, the ids used then are
used again, and only what comes behind is taken as rendered.
"""

import hashlib
import sys
from collections import Counter, OrderedDict, defaultdict
from collections.abc import Iterator, Sequence

import attrs

from flashrt.chat.outline import Part, PartKind
from flashrt.chat.prompt import PackedIds, Prompt
from flashrt.chat.visible import Visible
from flashrt.engine.protocol import ID_BYTES, pack_ids

REPLAY_BYTES_MAX = 32 << 20
"""What is remembered, an id in 4 bytes: some hundred long conversations."""

PLACE_BYTES = 700
"""Of Python's objects: a place with its two digests, and where it is found by them."""


@attrs.frozen(eq=False)
class Place:
    """Where an answer or a system turn ended: its own ids behind those of `before`.

    `digest` names what the client sees up to here, `spot` the same without this answer's thinking.
    """

    digest: str
    spot: str
    before: "Place | None"
    packed: bytes

    @property
    def size_bytes(self) -> int:
        """What it holds by itself."""
        return PLACE_BYTES + sys.getsizeof(self.packed)

    @property
    def line(self) -> tuple["Place", ...]:
        """All places from the first one to this."""
        places: list[Place] = []
        place: Place | None = self
        while place is not None:
            places.append(place)
            place = place.before
        return tuple(reversed(places))


@attrs.frozen(eq=False)
class Replayed(PackedIds):
    """A prompt as it is really used; `replayed_tokens` of its ids are not taken as rendered.

    `digest` names what the client sees up to the generation prompt; None: nobody comes back to it,
    as where the prompt is bare ids. `place`: the last known place, which ends at `kept` ids.
    """

    packed: bytes
    replayed_tokens: int = 0
    digest: str | None = None
    place: Place | None = None
    kept: int = 0

    @classmethod
    def canonical(cls, prompt: Prompt, digest: str | None = None) -> "Replayed":
        """As rendered."""
        return cls(prompt.packed, digest=digest)


class ReplayMemory:
    """Places by what a client sees, least recently used first out, bounded by their bytes.

    A place that another took the name of is held by those that begin with it, and counted as long.
    """

    def __init__(self, bytes_max: int = REPLAY_BYTES_MAX) -> None:
        self._bytes_max = bytes_max
        self._bytes = 0
        self._holders: Counter[Place] = Counter()
        self._places: OrderedDict[str, Place] = OrderedDict()
        self._by_spot: defaultdict[str, dict[str, Place]] = defaultdict(dict)

    @property
    def held_bytes(self) -> int:
        """What is remembered."""
        return self._bytes

    def replay(self, namespace: str, prompt: Prompt) -> Replayed:
        """The prompt with its longest known beginning as it was used before."""
        if prompt.outline is None:
            return Replayed.canonical(prompt)
        digest, found, stop = _digest(namespace), None, 0
        closing: tuple[int, ...] = ()
        for part in prompt.outline.parts:
            if part.kind is PartKind.GENERATION or not part.closed:
                break
            place, digest = self._step(digest, part)
            if place is not None:
                found, stop, closing = place, part.stop, part.closing
        open_ended = not prompt.outline.parts[-1].closed
        tail = None if open_ended else digest
        if found is None:
            return Replayed.canonical(prompt, tail)
        self._touch(found)
        return _assembled(prompt, found, stop, pack_ids(closing), tail)

    def note_system(self, namespace: str, prompt: Prompt) -> str | None:
        """The first spelling of a system turn stays: remember it as it was rendered.

        The digest of its place; None: there is no such turn.
        """
        if prompt.outline is None or prompt.outline.parts[0].kind is not PartKind.SYSTEM:
            return None
        part = prompt.outline.parts[0]
        spot = _digest(_digest(namespace), part.kind.name, part.key)
        digest = _digest(spot, "")
        if digest not in self._places:
            self._keep(Place(digest, spot, None, prompt.packed[: part.stop * ID_BYTES]))
        return digest

    def note_answer(self, used: Replayed, visible: Visible, ids: Sequence[int]) -> str | None:
        """An answer to `used` has ended; `ids`: the journal there, and its visible tail.

        The digest of its place; None: nobody comes back to it.
        """
        if used.digest is None:
            return None
        spot = _digest(used.digest, PartKind.ANSWER.name, visible.key())
        digest = _digest(spot, visible.reasoning.strip())
        self._keep(Place(digest, spot, used.place, pack_ids(ids[used.kept :])))
        return digest

    def places(self) -> Iterator[Place]:
        """All that is come back to, least recently used first."""
        return iter(self._places.values())

    def keep(self, place: Place) -> None:
        """Remember a place as the newest, in the stead of one of its name."""
        self._keep(place)

    def forget(self, digest: str) -> None:
        """A place is not come back to any more; what begins with it still holds it."""
        if digest in self._places:
            self._forget(self._places[digest])

    # -- inside ----------------------------------------

    def _step(self, digest: str, part: Part) -> tuple[Place | None, str]:
        """The place behind `part`, if it is known, and the digest up to there."""
        spot = _digest(digest, part.kind.name, part.key)
        known = self._by_spot.get(spot, {})
        if part.reasoning or not known:
            digest = _digest(spot, part.reasoning)
            return known.get(digest), digest
        newest = next(reversed(known.values()))
        return newest, newest.digest

    def _touch(self, place: Place) -> None:
        """A place is never older than what begins with it, so no line loses its beginning first."""
        for one in reversed(place.line):
            if one.digest in self._places:
                self._places.move_to_end(one.digest)

    def _keep(self, place: Place) -> None:
        if place.digest in self._places:
            self._forget(self._places[place.digest])
        self._places[place.digest] = place
        self._by_spot[place.spot][place.digest] = place
        self._hold(place)
        self._touch(place)
        while self._bytes > self._bytes_max:
            self._forget(next(iter(self._places.values())))

    def _forget(self, place: Place) -> None:
        del self._places[place.digest]
        del self._by_spot[place.spot][place.digest]
        if not self._by_spot[place.spot]:
            del self._by_spot[place.spot]
        self._release(place)

    def _hold(self, place: Place | None) -> None:
        """One more refers to it: the memory, or a place that goes on from there."""
        while place is not None:
            self._holders[place] += 1
            if self._holders[place] > 1:
                return
            self._bytes += place.size_bytes
            place = place.before

    def _release(self, place: Place | None) -> None:
        """One less does; the last one takes it along."""
        while place is not None:
            self._holders[place] -= 1
            if self._holders[place]:
                return
            del self._holders[place]
            self._bytes -= place.size_bytes
            place = place.before


def _assembled(
    prompt: Prompt, place: Place, stop: int, closing: bytes, digest: str | None
) -> Replayed:
    """The ids of `place`, its turn closed, and what is rendered behind position `stop`."""
    base = b"".join(_packed_line(place))
    kept = len(base) // ID_BYTES
    if closing and not base.endswith(closing):
        base += closing
    packed = base + prompt.packed[stop * ID_BYTES :]
    if packed == prompt.packed:
        return Replayed(prompt.packed, 0, digest, place, kept)
    return Replayed(packed, kept, digest, place, kept)


def _packed_line(place: Place) -> Iterator[bytes]:
    return (one.packed for one in place.line)


def _digest(*parts: str) -> str:
    """Of parts in their order; no two different lists of parts give the same text."""
    text = "".join(f"{len(part)}:{part}" for part in parts)
    return hashlib.blake2b(text.encode(errors="surrogatepass"), digest_size=16).hexdigest()
