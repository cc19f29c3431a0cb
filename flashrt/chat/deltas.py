"""The pieces of an answer, in the order in which a client sees them."""

from enum import Enum

import attrs


class FinishReason(Enum):
    """Why an answer ended, in OpenAI's words."""

    STOP = "stop"
    LENGTH = "length"
    TOOL_CALLS = "tool_calls"


@attrs.frozen
class TextDelta:
    """Visible text."""

    text: str


@attrs.frozen
class ThinkingDelta:
    """Text inside the think block."""

    text: str


@attrs.frozen
class ToolCallStart:
    """A tool call begins; `index` counts the calls of this answer from 0."""

    index: int
    call_id: str
    name: str


@attrs.frozen
class ToolCallArguments:
    """A further piece of the JSON text of a call's arguments."""

    index: int
    text: str


@attrs.frozen
class ToolCallEnd:
    """A call is complete: its arguments are whole, and the model has left it.

    A call without this delta was left open, by a cut or by the model, and must not be executed.
    """

    index: int


Delta = TextDelta | ThinkingDelta | ToolCallStart | ToolCallArguments | ToolCallEnd


@attrs.frozen
class Ending:
    """How an answer ended, and what of it the journal may keep.

    `sampled_tokens` were produced up to the end, a stop id included. `kept_tokens` of them may stay
    in the journal: all, unless a stop string cut the visible text shorter (then at least 1, which
    is pending and not processed). `reasoning_tokens` were inside the think block.
    `tail`: ids of visible text that no kept id covers, where a stop string cut inside a token. The
    first `shown_tokens` ids (None: all that are kept) and `tail` read as the client saw it.
    `stop_string`: the one that ended it.
    """

    reason: FinishReason
    sampled_tokens: int
    kept_tokens: int
    reasoning_tokens: int = 0
    tail: tuple[int, ...] = ()
    shown_tokens: int | None = None
    stop_string: str | None = None


@attrs.frozen
class Fed:
    """What came of feeding one burst of ids: deltas, and the ending once there is one."""

    deltas: tuple[Delta, ...]
    ending: Ending | None = None
