"""Answers that were kept for their clients, to be shown again and gone on with."""

import sys
from collections.abc import Iterable, Sequence
from typing import Any

import attrs
import msgspec

from flashrt.chat.request import CacheHints, Json

ANSWERS_MAX = 1_000
BYTES_MAX = 64 << 20
"""What all of them may hold together; the oldest go first."""

ANSWER_BYTES, TEXT_BYTES, PLACE_BYTES = 900, 120, 8
"""Of Python's objects: an answer, the count of a text's uses, and a text's place in an answer."""


def written(items: Iterable[Json]) -> tuple[bytes, ...]:
    """Items as they are kept."""
    return tuple(msgspec.json.encode(item) for item in items)


@attrs.frozen(eq=False)
class StoredAnswer:
    """One answer. Items are JSON texts, and those of answers before are the same objects there.

    `client`: whose it is (G10). `response`: the response object, without its output.
    """

    client: str
    response_id: str
    response: bytes
    input: tuple[bytes, ...]
    output: tuple[bytes, ...]
    hints: CacheHints = attrs.field(factory=CacheHints)

    @property
    def texts(self) -> tuple[bytes, ...]:
        """The items of the whole conversation, up to the end of this answer."""
        return (*self.input, *self.output)

    @property
    def items(self) -> list[Json]:
        """The same, read."""
        return [msgspec.json.decode(text) for text in self.texts]

    @property
    def body(self) -> bytes:
        """The response object with its output."""
        whole: dict[str, Any] = msgspec.json.decode(self.response)
        return msgspec.json.encode({**whole, "output": [msgspec.Raw(text) for text in self.output]})


class AnswerStore:
    """Keeps the newest answers, up to a count and to bytes. Lives on the trio loop."""

    def __init__(self, answers_max: int = ANSWERS_MAX, bytes_max: int = BYTES_MAX) -> None:
        self._answers_max = answers_max
        self._bytes_max = bytes_max
        self._answers: dict[tuple[str, str], StoredAnswer] = {}
        self._uses: dict[int, int] = {}  # of each text, by its identity: answers share them
        self.held_bytes = 0

    def __len__(self) -> int:
        return len(self._answers)

    def keep(self, answer: StoredAnswer) -> None:
        """Add one; the oldest go to make room, and one that is too large for itself is not kept."""
        self._answers[answer.client, answer.response_id] = answer
        self._count(answer, +1)
        while self._answers and (
            len(self._answers) > self._answers_max or self.held_bytes > self._bytes_max
        ):
            self._count(self._answers.pop(next(iter(self._answers))), -1)

    def find(self, client: str, response_id: str) -> StoredAnswer | None:
        """A client's own answer; another's is as unknown as one that never was."""
        return self._answers.get((client, response_id))

    def delete(self, client: str, response_id: str) -> bool:
        """Let go of one; whether it was there."""
        gone = self._answers.pop((client, response_id), None)
        if gone is not None:
            self._count(gone, -1)
        return gone is not None

    def _count(self, answer: StoredAnswer, by: int) -> None:
        names = len(answer.client) + 2 * len(answer.response_id) + _size(answer.hints)
        self.held_bytes += by * (ANSWER_BYTES + names + sys.getsizeof(answer.response))
        self._count_texts((*answer.input, *answer.output), by)

    def _count_texts(self, texts: Sequence[bytes], by: int) -> None:
        for text in texts:
            uses = self._uses.get(id(text), 0)
            left = uses + by
            self.held_bytes += by * PLACE_BYTES
            if uses == 0 or left == 0:
                self.held_bytes += by * (TEXT_BYTES + sys.getsizeof(text))
            if left:
                self._uses[id(text)] = left
            else:
                del self._uses[id(text)]


def _size(hints: CacheHints) -> int:
    return sum(len(value) for value in attrs.astuple(hints) if isinstance(value, str))
