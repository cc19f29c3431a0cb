"""The items of a Responses answer while they grow, and the events that tell of each."""

from collections.abc import Iterator, Sequence
from typing import Any

import attrs

from flashrt.protocols import responses_events as events
from flashrt.protocols.logprobs import ContentLogprob
from flashrt.protocols.responses_custom import InputText
from flashrt.protocols.responses_events import Event
from flashrt.protocols.responses_object import (
    CustomCallItem,
    FunctionCallItem,
    MessageItem,
    OutputItem,
    OutputText,
    ReasoningItem,
    ReasoningText,
    SummaryText,
)
from flashrt.protocols.responses_thought import sealed
from flashrt.protocols.responses_tools import Offer, ToolName

IN_PROGRESS, COMPLETED, INCOMPLETE = "in_progress", "completed", "incomplete"


@attrs.frozen
class Form:
    """How an answer is written. `summarizes`: thinking is a summary, and no content of its own.

    `seals`: it also comes sealed, so that a client which shows none can give it back.
    """

    offer: Offer
    summarizes: bool = False
    seals: bool = False


@attrs.define
class OpenItem:
    """An item as it grows. `text` is what it has so far."""

    item_id: str
    output_index: int
    text: list[str] = attrs.field(factory=list)
    status: str = IN_PROGRESS

    @property
    def whole(self) -> str:
        """All of its text."""
        return "".join(self.text)

    @property
    def place(self) -> dict[str, Any]:
        """Where its events say that they belong."""
        return {"item_id": self.item_id, "output_index": self.output_index}

    def item(self, text: str | None) -> OutputItem:
        """As it is; `text` None: as it begins, without parts."""
        raise NotImplementedError

    def begins(self) -> Iterator[Event]:
        """The events of its beginning."""
        yield events.ItemAdded(output_index=self.output_index, item=self.item(None))

    def grows(self, text: str, logprobs: Sequence[ContentLogprob] = ()) -> Iterator[Event]:
        """The events of a further piece."""
        raise NotImplementedError

    def closes(self, status: str) -> Iterator[Event]:
        """The events of its end."""
        raise NotImplementedError

    def done(self) -> Event:
        """The last of them."""
        return events.ItemDone(output_index=self.output_index, item=self.item(self.whole))


@attrs.define
class OpenReasoning(OpenItem):
    """A think block."""

    form: Form = attrs.field(kw_only=True)

    def item(self, text: str | None) -> OutputItem:
        item = ReasoningItem(self.item_id, self.status)
        if self.form.seals:
            item.encrypted_content = sealed(text) if self.status != IN_PROGRESS and text else None
        if text is not None and self.form.summarizes:
            item.summary = [SummaryText(text)]
        elif text is not None:
            item.content = [ReasoningText(text)]
        return item

    def begins(self) -> Iterator[Event]:
        yield from OpenItem.begins(self)
        if self.form.summarizes:
            yield events.SummaryPartAdded(**self.place, part=SummaryText())
        else:
            yield events.PartAdded(**self.place, part=ReasoningText())

    def grows(self, text: str, logprobs: Sequence[ContentLogprob] = ()) -> Iterator[Event]:
        self.text.append(text)
        if self.form.summarizes:
            yield events.SummaryDelta(**self.place, delta=text)
        else:
            yield events.ReasoningDelta(**self.place, delta=text)

    def closes(self, status: str) -> Iterator[Event]:
        self.status, text = status, self.whole
        if self.form.summarizes:
            yield events.SummaryDone(**self.place, text=text)
            yield events.SummaryPartDone(**self.place, part=SummaryText(text))
        else:
            yield events.ReasoningDone(**self.place, text=text)
            yield events.PartDone(**self.place, part=ReasoningText(text))
        yield self.done()


@attrs.define
class OpenMessage(OpenItem):
    """Visible text."""

    logprobs: list[ContentLogprob] = attrs.field(factory=list)

    def item(self, text: str | None) -> OutputItem:
        parts = [] if text is None else [OutputText(text, logprobs=list(self.logprobs))]
        return MessageItem(self.item_id, self.status, parts)

    def begins(self) -> Iterator[Event]:
        yield from OpenItem.begins(self)
        yield events.PartAdded(**self.place, part=OutputText())

    def grows(self, text: str, logprobs: Sequence[ContentLogprob] = ()) -> Iterator[Event]:
        self.text.append(text)
        self.logprobs.extend(logprobs)
        yield events.TextDelta(**self.place, delta=text, logprobs=list(logprobs))

    def closes(self, status: str) -> Iterator[Event]:
        self.status, text, told = status, self.whole, list(self.logprobs)
        yield events.TextDone(**self.place, text=text, logprobs=told)
        yield events.PartDone(**self.place, part=OutputText(text, logprobs=told))
        yield self.done()


@attrs.define
class OpenCall(OpenItem):
    """A call with JSON arguments."""

    call_id: str = attrs.field(kw_only=True)
    tool: ToolName = attrs.field(kw_only=True)

    def item(self, text: str | None) -> OutputItem:
        item = FunctionCallItem(self.item_id, self.status, self.call_id, self.tool.name, text or "")
        if self.tool.namespace is not None:
            item.namespace = self.tool.namespace
        return item

    def grows(self, text: str, logprobs: Sequence[ContentLogprob] = ()) -> Iterator[Event]:
        self.text.append(text)
        yield events.ArgumentsDelta(**self.place, delta=text)

    def closes(self, status: str) -> Iterator[Event]:
        self.status = status
        yield events.ArgumentsDone(**self.place, arguments=self.whole, name=self.tool.name)
        yield self.done()


@attrs.define
class OpenCustomCall(OpenItem):
    """A call with a text."""

    call_id: str = attrs.field(kw_only=True)
    tool: ToolName = attrs.field(kw_only=True)
    reader: InputText = attrs.field(factory=InputText)

    def item(self, text: str | None) -> OutputItem:
        item = CustomCallItem(self.item_id, self.status, self.call_id, self.tool.name, text or "")
        if self.tool.namespace is not None:
            item.namespace = self.tool.namespace
        return item

    def grows(self, text: str, logprobs: Sequence[ContentLogprob] = ()) -> Iterator[Event]:
        yield from self._told(self.reader.feed(text))

    def closes(self, status: str) -> Iterator[Event]:
        yield from self._told(self.reader.rest())
        self.status = status
        yield events.InputDone(**self.place, input=self.whole)
        yield self.done()

    def _told(self, text: str) -> Iterator[Event]:
        if text:
            self.text.append(text)
            yield events.InputDelta(**self.place, delta=text)
