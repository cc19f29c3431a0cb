"""What limits the ids of one answer: its shape and its thinking budget, as one constraint."""

import numpy as np
from numpy.typing import NDArray

from flashrt.chat.grammar import CALL_CLOSE, Grammars
from flashrt.chat.guide import EndsAfterCall, Guide
from flashrt.chat.marked import THINK_CLOSE
from flashrt.chat.prompt import Prompt
from flashrt.chat.request import AgentRequest
from flashrt.chat.shape import AnswerShape, OneCall
from flashrt.chat.thinking import Constrains, ThinkingBudget, Together
from flashrt.chat.tokenizer import Tokenizer
from flashrt.errors import BadRequest

LEAD = "\n\n"
"""What stands between a think block and the answer, in the family's template."""


class Constraints:
    """Makes the constraint of a request. Called from several helper threads at a time."""

    def __init__(self, tokenizer: Tokenizer, vocab_size: int, stop_ids: frozenset[int]) -> None:
        """`vocab_size`: the engine's, padding included. Takes about a second for 248k tokens."""
        self._tokenizer = tokenizer
        self._grammars = Grammars(tokenizer, vocab_size, stop_ids)
        self._think_close = tokenizer.control.get(THINK_CLOSE)
        self._lead = tokenizer.encode_text(LEAD)
        self._stops = _row(vocab_size, stop_ids)
        self._thoughts = _row(vocab_size, range(tokenizer.vocab_size))
        # Neither an end nor a call may come out of a block behind which a shape is promised.
        self._thoughts[[*tokenizer.control.values(), *stop_ids]] = False
        if self._think_close is not None:
            self._thoughts[self._think_close] = True

    @property
    def held_bytes(self) -> int:
        """About what the compiled shapes hold that are kept."""
        return self._grammars.held_bytes

    def of(self, request: AgentRequest, prompt: Prompt) -> Constrains | None:
        """The constraint, at the start of the answer; None where all is free.

        Raises BadRequest for a shape that cannot be enforced.
        """
        found: list[Constrains] = []
        # A vocabulary without think blocks keeps every budget.
        if request.thinking_tokens is not None and self._think_close is not None:
            budget = ThinkingBudget.of(
                self._tokenizer, request.thinking_tokens, is_open=prompt.opens_thinking
            )
            found.append(budget)
        if request.shape is not None:
            found.append(self._shaped(request.shape, opens_thinking=prompt.opens_thinking))
        return Together(*found) if len(found) > 1 else next(iter(found), None)

    def _shaped(self, shape: AnswerShape, *, opens_thinking: bool) -> Constrains:
        if not isinstance(shape, OneCall):
            return Guide(
                self._grammars.compile(shape),
                opens_thinking=opens_thinking,
                think_close=self._think_close,
                lead=self._lead,
                thoughts=self._thoughts,
            )
        close = self._tokenizer.control.get(CALL_CLOSE)
        if close is None:
            raise BadRequest(
                "This model's vocabulary has no token that ends a call, so their number cannot be "
                "limited.",
                param="parallel_tool_calls",
            )
        return EndsAfterCall(
            call_close=close,
            think_close=self._think_close,
            opens_thinking=opens_thinking,
            stops=self._stops,
        )


def _row(vocab_size: int, ids: range | frozenset[int]) -> NDArray[np.bool_]:
    row = np.zeros(vocab_size, np.bool_)
    row[list(ids)] = True
    return row
