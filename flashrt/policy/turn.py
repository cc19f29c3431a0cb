"""A turn on the engine thread: the request as the loop sees it, and the events that it causes."""

from collections.abc import Generator, Mapping
from typing import Protocol

import attrs

from flashrt.chat.deltas import Delta, Ending, Fed
from flashrt.chat.prompt import Prompt
from flashrt.chat.session_call import SessionAnswer
from flashrt.chat.visible import Visible
from flashrt.engine.protocol import Constraint, SamplingParams, TokenLogprobs
from flashrt.errors import FlashRTError
from flashrt.fsm.lifecycle import LifeEvent
from flashrt.policy.lineage import Lineage
from flashrt.policy.prefix import PrefixPlan
from flashrt.policy.steps import Step, StepResult, Tell


class Cancellable(Protocol):
    """Something that may ask for the end at the next boundary."""

    @property
    def cancelled(self) -> bool:
        """Whether the end was asked for."""
        ...


class Answering(Protocol):
    """Turns sampled ids into deltas and says where the answer ends (`chat.answer.Answer`)."""

    def feed(self, tokens: tuple[int, ...]) -> Fed:
        """The deltas of one burst, and the ending if it lies in it."""
        ...

    def window_end(self) -> Fed:
        """The window is full: what was held back, and the ending."""
        ...

    @property
    def visible(self) -> Visible:
        """What the client has seen so far."""
        ...


@attrs.frozen(eq=False)
class Turn:
    """What the loop must know to serve one request.

    `session_hint`: how the client calls the conversation. `pin_prefix`: keep the state at the last
    cut at or below so many tokens (True: the system turn's), or let go (False, 0).
    `max_decode_ms`: an answer that has taken longer ends as if its window were full; 0: no limit.
    """

    prompt: Prompt
    sampling: SamplingParams
    answer: Answering
    cancel: Cancellable
    namespace: str = ""
    constraint: Constraint | None = None
    session_hint: str | None = None
    pin_prefix: int | bool | None = None
    max_decode_ms: float = 0.0


@attrs.frozen
class Planned:
    """The plan is made and its state is attached to; nothing has been fed yet.

    `session`: the name of the conversation whose turn it is.
    """

    plan: PrefixPlan
    session: str = ""


@attrs.frozen
class Progressed:
    """Prefill stands at a cut: `position` tokens of the prompt are processed."""

    position: int


@attrs.frozen
class Prefilled:
    """The whole prompt is processed, and how."""

    lineage: Lineage


@attrs.frozen
class Pinned:
    """What came of the wish to pin: `pinned_tokens`, or why it was `refused`."""

    report: Mapping[str, object]


@attrs.frozen
class Saved:
    """A capsule was taken; or could not be, because of an `error` of the cache (G8)."""

    error: str = ""


@attrs.frozen
class Answered:
    """One accepted burst, cut at the ending if there is one.

    `drafted` ids were proposed for it; the first `accepted` of `tokens` are ids of the draft. No
    tokens: not a burst, only text that was held back.
    """

    deltas: tuple[Delta, ...]
    tokens: tuple[int, ...] = ()
    drafted: int = 0
    accepted: int = 0
    drafter: str = ""
    logprobs: tuple[TokenLogprobs, ...] = ()


@attrs.frozen
class Ended:
    """The one terminal event: FINISH with an ending, CANCEL, or FAIL with an error.

    A session call that is refused has done its work too: FINISH with the refusal.
    """

    event: LifeEvent
    ending: Ending | None = None
    error: FlashRTError | None = None


@attrs.frozen
class Told:
    """What a session call has come to."""

    answer: SessionAnswer


TurnEvent = Planned | Progressed | Prefilled | Pinned | Saved | Answered | Ended | Told
Steps = Generator[Step, StepResult, None]
Work = Generator[Step | Tell, StepResult, None]
"""Whole pieces of work, as they are driven."""
