"""The engine steps as values, and the one place that performs them."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import attrs

from flashrt.engine.protocol import (
    Capsule,
    Constraint,
    DecodeChunk,
    Engine,
    RowBlock,
    SamplingParams,
)
from flashrt.policy.shelf import Unpacked
from flashrt.policy.tiers import Tier


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


@attrs.frozen
class Weigh:
    """How many bytes a capsule would newly hold: of the state here, or at `length` ids."""

    length: int | None = None


@attrs.frozen
class Save:
    """Take a capsule of the state here, or as it stood at `length` processed ids."""

    length: int | None = None


@attrs.frozen
class Refill:
    """Copy the rows of a block that a capsule shares and that lies elsewhere by now."""

    block: RowBlock


@attrs.frozen
class Fetch:
    """Read a capsule from its file."""

    read: Callable[[], Unpacked]


@attrs.frozen
class Lift:
    """Bring buffers from host memory into the engine's."""

    parts: Sequence[Mapping[str, Any]]


@attrs.frozen
class Restore:
    """Become the state of a capsule, which lay in `tier`."""

    capsule: Capsule
    tier: Tier = Tier.DEVICE


@attrs.frozen
class Tell:
    """Nothing for the engine: what has come up is handed out before the work that follows."""


Moving = Refill | Fetch | Lift
Step = Reset | Prefill | Decode | Advance | DropPending | Rollback | Weigh | Save | Restore | Moving
StepResult = (
    int | DecodeChunk | Capsule | Unpacked | Mapping[str, Any] | Sequence[Mapping[str, Any]] | None
)
"""A position after prefill, bytes after `Weigh`, a capsule after `Save`, a chunk after decode,
buffers after `Refill` and `Lift`, what was read after `Fetch`; None when decode is at its end."""


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
            case Weigh(length):
                return self.engine.snapshot_bytes(length)
            case Save(length):
                return self.engine.snapshot(length)
            case Restore(capsule):
                self.engine.restore(capsule)
                return None
            case Refill(block):
                return self.engine.refill(block)
            case Fetch(read):
                return read()
            case Lift(parts):
                return [self.engine.to_device(part) for part in parts]
            case Prefill(tokens, cuts):
                self._open = self.engine.prefill(tokens, cuts)
            case Decode(params, constraint):
                self._open = self.engine.decode(params, constraint)
            case Advance():
                pass
        return next(self._open, None)
