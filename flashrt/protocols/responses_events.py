"""The events of a streamed Responses answer. What a client may rely on is their order."""

from typing import Any

import msgspec

from flashrt.protocols.logprobs import ContentLogprob
from flashrt.protocols.responses_object import (
    OutputItem,
    OutputText,
    ReasoningText,
    Response,
    SummaryText,
)


class Event(msgspec.Struct, tag_field="type", kw_only=True):
    """Any event. `sequence_number` counts from 0 and is set when it is written."""

    sequence_number: int = 0


class ResponseEvent(Event, kw_only=True):
    """An event that has the response object."""

    response: Response


class Created(ResponseEvent, tag="response.created"):
    """The first."""


class InProgress(ResponseEvent, tag="response.in_progress"):
    """The second, and again whenever there was silence for long."""


class Completed(ResponseEvent, tag="response.completed"):
    """The last, of a whole answer."""


class Incomplete(ResponseEvent, tag="response.incomplete"):
    """The last, of one that was cut or cancelled."""


class FailedEvent(ResponseEvent, tag="response.failed"):
    """The last, of one that failed."""


class ItemEvent(Event, kw_only=True):
    """An event of one item as a whole."""

    output_index: int
    item: OutputItem


class ItemAdded(ItemEvent, tag="response.output_item.added"):
    """An item begins, still empty."""


class ItemDone(ItemEvent, tag="response.output_item.done"):
    """It is over. A call that was left open has none."""


class InItem(Event, kw_only=True):
    """An event inside an item."""

    item_id: str
    output_index: int


class PartEvent(InItem, kw_only=True):
    """An event of one part of an item."""

    part: OutputText | ReasoningText
    content_index: int = 0


class PartAdded(PartEvent, tag="response.content_part.added"):
    """A part begins."""


class PartDone(PartEvent, tag="response.content_part.done"):
    """A part is over."""


class TextDelta(InItem, tag="response.output_text.delta", kw_only=True):
    """More visible text."""

    delta: str
    content_index: int = 0
    logprobs: list[ContentLogprob] = []


class TextDone(InItem, tag="response.output_text.done", kw_only=True):
    """The text is whole."""

    text: str
    content_index: int = 0
    logprobs: list[ContentLogprob] = []


class ReasoningDelta(InItem, tag="response.reasoning_text.delta", kw_only=True):
    """More thinking."""

    delta: str
    content_index: int = 0


class ReasoningDone(InItem, tag="response.reasoning_text.done", kw_only=True):
    """The thinking is whole."""

    text: str
    content_index: int = 0


class SummaryPartEvent(InItem, kw_only=True):
    """An event of the one part of a summary."""

    part: SummaryText
    summary_index: int = 0


class SummaryPartAdded(SummaryPartEvent, tag="response.reasoning_summary_part.added"):
    """The summary begins."""


class SummaryPartDone(SummaryPartEvent, tag="response.reasoning_summary_part.done"):
    """The summary is over."""


class SummaryDelta(InItem, tag="response.reasoning_summary_text.delta", kw_only=True):
    """More thinking, as a summary."""

    delta: str
    summary_index: int = 0


class SummaryDone(InItem, tag="response.reasoning_summary_text.done", kw_only=True):
    """The summary's text is whole."""

    text: str
    summary_index: int = 0


class ArgumentsDelta(InItem, tag="response.function_call_arguments.delta", kw_only=True):
    """More of a call's arguments."""

    delta: str


class ArgumentsDone(InItem, tag="response.function_call_arguments.done", kw_only=True):
    """The arguments are whole."""

    arguments: str
    name: str


class InputDelta(InItem, tag="response.custom_tool_call_input.delta", kw_only=True):
    """More of a custom call's text."""

    delta: str


class InputDone(InItem, tag="response.custom_tool_call_input.done", kw_only=True):
    """The text is whole."""

    input: str


AnyEvent = (
    Created
    | InProgress
    | Completed
    | Incomplete
    | FailedEvent
    | ItemAdded
    | ItemDone
    | PartAdded
    | PartDone
    | TextDelta
    | TextDone
    | ReasoningDelta
    | ReasoningDone
    | SummaryPartAdded
    | SummaryPartDone
    | SummaryDelta
    | SummaryDone
    | ArgumentsDelta
    | ArgumentsDone
    | InputDelta
    | InputDone
)


def tag_of(event: Event) -> str:
    """An event's type, as its `event:` line has it."""
    tag: Any = type(event).__struct_config__.tag
    return str(tag)
