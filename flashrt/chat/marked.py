"""Rendered text whose control tokens are marked, and how it is cut at them."""

from collections.abc import Container, Iterator, Sequence
from itertools import chain, islice
from typing import Any, NamedTuple

import attrs

from flashrt.chat.loops import NO_ROUNDS, Rounds
from flashrt.chat.template import CLOSE, OPEN, Template
from flashrt.errors import BadRequest

THINK_OPEN = "<think>"
THINK_CLOSE = "</think>"

PRIVATE_USE = (range(0xE000, 0xF900), range(0xF0000, 0xFFFFE), range(0x100000, 0x10FFFE))


class Piece(NamedTuple):
    """Plain text, or one control token by its literal. A tuple: a long history has thousands."""

    text: str
    is_control: bool = False


@attrs.frozen
class Marked:
    """What a template rendered. `stand_ins` stand in it for marks that came in as values."""

    text: str
    stand_ins: tuple[str, str] | None = None

    def up_to(self, mark: str) -> "Marked":
        """What stands in front of `mark`."""
        return attrs.evolve(self, text=self.text.partition(mark)[0])

    def behind(self, start: str) -> "Marked":
        """What stands behind `start`, with which this begins."""
        return attrs.evolve(self, text=self.text[len(start) :])

    def pieces(self) -> list[Piece]:
        """The text cut at its control tokens, without marks."""
        return [piece for piece in self._cut() if piece.text]

    def _cut(self) -> Iterator[Piece]:
        head, *parts = self.text.split(OPEN)
        plain = head
        for part in parts:
            literal, closed, tail = part.partition(CLOSE)
            if closed:
                yield Piece(self._unmarked(plain))
                yield Piece(literal, is_control=True)
                plain = tail
            else:  # the template cut its own token in two: that is text now
                plain += part
        yield Piece(self._unmarked(plain))

    def _unmarked(self, text: str) -> str:
        if CLOSE in text:
            text = text.replace(CLOSE, "")
        if self.stand_ins:
            for mark, stand_in in zip((OPEN, CLOSE), self.stand_ins, strict=True):
                text = text.replace(stand_in, mark)
        return text


def render_marked(
    template: Template,
    values: dict[str, Any],
    rounds: Rounds = NO_ROUNDS,
    *,
    plain: bool = False,
) -> Marked:
    """Render `values` so that no string in them can pass for a control token of the template.

    `plain`: it is known that none of them holds a mark. `rounds`: see `Template.render`.
    """
    if plain or not holds_mark(values):
        return Marked(template.render(values, rounds))
    first, second = private_characters(values, template.source, 2)
    stand_ins = (first, second)
    table = str.maketrans(dict(zip((OPEN, CLOSE), stand_ins, strict=True)))
    return Marked(template.render(_translated(values, table)), stand_ins)


def private_characters(values: Any, source: str, count: int) -> list[str]:
    """Private characters that occur nowhere in the values, nor in the template. Raises BadRequest.

    None of them is one of our marks.
    """
    taken = set(chain.from_iterable(_strings(values))).union(source, OPEN, CLOSE)
    free = (chr(code) for code in chain(*PRIVATE_USE) if chr(code) not in taken)
    found = list(islice(free, count))
    if len(found) < count:
        raise BadRequest(
            "The messages use every private-use character of Unicode; FlashRT needs a few of them "
            "to tell its own marks apart. Leave some out.",
            param="messages",
        )
    return found


def opens_thinking(pieces: Sequence[Piece], control: Container[str]) -> bool:
    """Whether a prompt ends inside a think block: nothing but text after an opening."""
    if THINK_OPEN not in control:
        tail = pieces[-1].text if pieces and not pieces[-1].is_control else ""
        return tail.rfind(THINK_OPEN) > tail.rfind(THINK_CLOSE)
    last = next((piece.text for piece in reversed(pieces) if piece.is_control), None)
    return last == THINK_OPEN


def holds_mark(value: Any) -> bool:
    """Whether one of our marks is in a string of this JSON."""
    if isinstance(value, str):
        return not value.isascii() and (OPEN in value or CLOSE in value)
    if isinstance(value, dict):
        return any(map(holds_mark, value)) or any(map(holds_mark, value.values()))
    if isinstance(value, list | tuple):
        return any(map(holds_mark, value))
    return False


def _strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from _strings(key)
            yield from _strings(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _strings(item)


def _translated(value: Any, table: dict[int, str]) -> Any:
    if isinstance(value, str):
        return value.translate(table)
    if isinstance(value, dict):
        return {_translated(k, table): _translated(v, table) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_translated(item, table) for item in value]
    return value
