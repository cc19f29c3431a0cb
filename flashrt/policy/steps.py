"""The engine steps as values, and the one place that performs them."""

from collections.abc import Iterator

import attrs

from flashrt.engine.protocol import Constraint, DecodeChunk, Engine, SamplingParams


@attrs.frozen
class Reset:
    """Forget the live state."""


@attrs.frozen
class Prefill:
    """Feed ids up to the first cut (or the end)."""

    tokens: tuple[int, ...]
    cuts: tuple[int, ...]


@attrs.frozen
class Decode:
    """Produce the first chunk of an answer."""

    params: SamplingParams
    constraint: Constraint | None = None


@attrs.frozen
class Advance:
    """Go on with the open prefill or decode to its next boundary."""


@attrs.frozen
class DropPending:
    """Forget the pending id."""


@attrs.frozen
class Rollback:
    """Drop the newest ids."""

    tokens: int


Step = Reset | Prefill | Decode | Advance | DropPending | Rollback
StepResult = int | DecodeChunk | None
"""A position after prefill, a chunk after decode, None when decode has come to its end."""


class Performer:
    """Carries out steps on one engine; holds the generator that is open between two steps."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self._open: Iterator[int | DecodeChunk] = iter(())

    def perform(self, step: Step) -> StepResult:
        """Do one step, up to the next boundary. Raises whatever the engine raises."""
        match step:
            case Reset():
                self.engine.reset()
                return None
            case DropPending():
                self.engine.drop_pending()
                return None
            case Rollback(tokens):
                self.engine.rollback(tokens)
                return None
            case Prefill(tokens, cuts):
                self._open = self.engine.prefill(tokens, cuts)
            case Decode(params, constraint):
                self._open = self.engine.decode(params, constraint)
            case Advance():
                pass
        return next(self._open, None)
