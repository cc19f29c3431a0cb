"""An answer's deltas folded into items, and into the events that tell of them."""

from collections.abc import Iterator, Sequence

from flashrt.chat.deltas import (
    Delta,
    TextDelta,
    ThinkingDelta,
    ToolCallArguments,
    ToolCallEnd,
    ToolCallStart,
)
from flashrt.protocols.logprobs import ContentLogprob
from flashrt.protocols.responses_events import Event
from flashrt.protocols.responses_items import (
    COMPLETED,
    IN_PROGRESS,
    INCOMPLETE,
    Form,
    OpenCall,
    OpenCustomCall,
    OpenItem,
    OpenMessage,
    OpenReasoning,
)
from flashrt.protocols.responses_object import OutputItem
from flashrt.protocols.responses_tools import ToolName


class AnswerItems:
    """Folds an answer into its items, in the order in which they were said."""

    def __init__(self, request_id: str, form: Form) -> None:
        self._request_id = request_id
        self._form = form
        self._all: list[OpenItem] = []
        self._text: OpenItem | None = None
        self._calls: dict[int, OpenItem] = {}

    def take(self, delta: Delta, logprobs: Sequence[ContentLogprob] = ()) -> Iterator[Event]:
        """The events that a delta brings. An empty text brings none."""
        match delta:
            case TextDelta(text) if text:
                yield from self._open(OpenMessage)
                yield from self._now.grows(text, logprobs)
            case ThinkingDelta(text) if text:
                yield from self._open(OpenReasoning)
                yield from self._now.grows(text)
            case ToolCallStart(index, call_id, name):
                yield from self._close(COMPLETED)
                yield from self._call(index, call_id, self._form.offer.called(name))
            case ToolCallArguments(index, text) if text:
                yield from self._calls[index].grows(text)
            case ToolCallEnd(index):
                yield from self._calls[index].closes(COMPLETED)

    def end(self, *, cut: bool) -> Iterator[Event]:
        """The answer is over. `cut`: what is open was not finished. A call that is, stays so."""
        yield from self._close(INCOMPLETE if cut else COMPLETED)
        for call in self._calls.values():
            if call.status == IN_PROGRESS:
                call.status = INCOMPLETE
        # Clients look for a message where there is no call, and so does the next turn.
        if not self._all or (not cut and all(isinstance(one, OpenReasoning) for one in self._all)):
            yield from self._open(OpenMessage)
            yield from self._close(COMPLETED)

    def stop(self) -> None:
        """The answer failed: what is open stays unfinished, and nobody is told more of it."""
        for one in self._all:
            if one.status == IN_PROGRESS:
                one.status = INCOMPLETE

    @property
    def items(self) -> list[OutputItem]:
        """As they are now."""
        return [one.item(one.whole) for one in self._all]

    @property
    def _now(self) -> OpenItem:
        assert self._text is not None, "text goes to an item that was opened for it"
        return self._text

    def _open(self, kind: type[OpenMessage] | type[OpenReasoning]) -> Iterator[Event]:
        """An item of this kind, unless the newest one is."""
        if isinstance(self._text, kind):
            return
        yield from self._close(COMPLETED)
        place = len(self._all)
        if kind is OpenMessage:
            self._text = OpenMessage(f"msg_{self._request_id}_{place}", place)
        else:
            self._text = OpenReasoning(f"rs_{self._request_id}_{place}", place, form=self._form)
        self._all.append(self._text)
        yield from self._text.begins()

    def _close(self, status: str) -> Iterator[Event]:
        if self._text is not None:
            yield from self._text.closes(status)
        self._text = None

    def _call(self, index: int, call_id: str, tool: ToolName) -> Iterator[Event]:
        kind, short = (OpenCustomCall, "ctc") if tool.custom else (OpenCall, "fc")
        place = len(self._all)
        call = kind(f"{short}_{self._request_id}_{place}", place, call_id=call_id, tool=tool)
        self._calls[index] = call
        self._all.append(call)
        yield from call.begins()
