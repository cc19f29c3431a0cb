"""How long a model may think: effort in words, and a budget that closes the block gracefully."""

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

import attrs

from flashrt.chat.guide import Row
from flashrt.chat.marked import THINK_CLOSE, THINK_OPEN
from flashrt.chat.request import Json
from flashrt.chat.tokenizer import Tokenizer
from flashrt.errors import BadRequest

Constrains = Callable[[Sequence[int], Sequence[int]], Sequence[Row]]
"""What `Engine.decode` takes as a constraint."""

CLOSING = "\n\nThat is enough thinking. I go on with what I have."
"""What a block says last when its budget is used up, so that the answer follows from something."""


@attrs.frozen
class Effort:
    """What a word means: ids that a think block may have (None: no limit), and template arguments.

    Templates that do not know an argument do not look at it.
    """

    thinking_tokens: int | None
    template_args: Mapping[str, bool | str]


def _effort(tokens: int | None, *, name: str | None) -> Effort:
    named: Json = {} if name is None else {"reasoning_effort": name}
    return Effort(tokens, MappingProxyType({"enable_thinking": name is not None, **named}))


# The family's newest template knows low, medium and xhigh, and refuses every other word.
EFFORTS: Mapping[str, Effort] = MappingProxyType(
    {
        "none": _effort(None, name=None),
        "minimal": _effort(512, name="low"),
        "low": _effort(2_048, name="low"),
        "medium": _effort(8_192, name="medium"),
        "high": _effort(32_768, name="xhigh"),
        "xhigh": _effort(None, name="xhigh"),
    }
)


def effort(word: str, param: str = "reasoning_effort") -> Effort:
    """What `word` means; `param` is where the client wrote it. Raises BadRequest."""
    found = EFFORTS.get(word.lower())
    if found is None:
        raise BadRequest(
            f'`{param}` = "{word}"; it must be one of {", ".join(EFFORTS)}.', param=param
        )
    return found


@attrs.define
class _Block:
    """Where the stream of ids stands. `forced` counts ids of the closing; 0 outside of it."""

    is_open: bool
    used: int = 0
    forced: int = 0


class ThinkingBudget:
    """Lets each think block have so many ids, and then closes it id by id.

    A constraint as the engine calls it: with the ids accepted since the call before and the draft,
    it answers for each row with the one id that may come, or None where any may. Lives for one
    answer, on the engine thread.
    """

    def __init__(
        self,
        tokens: int,
        *,
        open_id: int | None,
        close_id: int,
        closing: Sequence[int],
        is_open: bool,
    ) -> None:
        """`closing` contains `close_id`; `is_open` says whether the prompt ends in a block."""
        self._tokens = tokens
        self._open_id = open_id
        self._close_id = close_id
        self._closing = tuple(closing)
        self._block = _Block(is_open)

    @classmethod
    def of(cls, tokenizer: Tokenizer, tokens: int, *, is_open: bool) -> "ThinkingBudget":
        """With our closing words. Raises BadRequest if the vocabulary has no id that closes."""
        control = tokenizer.control
        if THINK_CLOSE not in control:
            raise BadRequest(
                f"This model has no token {THINK_CLOSE}, so its thinking cannot be limited. Leave "
                "the budget out.",
                param="reasoning_effort",
            )
        closing = (
            *tokenizer.encode_text(f"{CLOSING}\n"),
            control[THINK_CLOSE],
            *tokenizer.encode_text("\n\n"),
        )
        return cls(
            tokens,
            open_id=control.get(THINK_OPEN),
            close_id=control[THINK_CLOSE],
            closing=closing,
            is_open=is_open,
        )

    def __call__(self, accepted: Sequence[int], draft: Sequence[int]) -> list[int | None]:
        """One entry per row. Only `accepted` moves the budget on."""
        for token in accepted:
            self._move(self._block, token)
        ahead = attrs.evolve(self._block)
        rows = [self._row(ahead)]
        for token in draft:
            self._move(ahead, token)
            rows.append(self._row(ahead))
        return rows

    def _row(self, block: _Block) -> int | None:
        closes = block.forced or (block.is_open and block.used >= self._tokens)
        return self._closing[block.forced] if closes else None

    def _move(self, block: _Block, token: int) -> None:
        """One more id; a draft may have any, also one that a row would not have let through."""
        if token == self._row(block):
            block.forced = (block.forced + 1) % len(self._closing)
        else:
            block.forced = 0
        if token == self._close_id:
            block.is_open = False
        elif token == self._open_id and not block.is_open:
            block.is_open, block.used = True, 0
        elif block.is_open:
            block.used += 1


class Together:
    """Several constraints as one: of each row the first that limits it counts.

    They must not contradict each other: a budget speaks inside and at the end of a block, what
    shapes an answer speaks behind it, and both force the same blank line between.
    """

    def __init__(self, *constraints: Constrains) -> None:
        self._constraints = constraints

    def __call__(self, accepted: Sequence[int], draft: Sequence[int]) -> list[Row]:
        """One entry per row."""
        answers = [constraint(accepted, draft) for constraint in self._constraints]
        return [
            next((row for row in rows if row is not None), None)
            for rows in zip(*answers, strict=True)
        ]
