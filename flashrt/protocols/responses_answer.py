"""Responses answers: deltas to events, or to one object. Both come from the same items."""

from collections.abc import Callable, Iterable, Iterator, Sequence

import msgspec

from flashrt.chat.deltas import (
    Delta,
    FinishReason,
    TextDelta,
)
from flashrt.errors import AnswerCancelled
from flashrt.protocols.answer import Block, Head, Record, flashrt_block, joined
from flashrt.protocols.error import fault_of
from flashrt.protocols.fields import Call
from flashrt.protocols.logprobs import ContentLogprob, TokenLogprobs, chat_logprobs
from flashrt.protocols.responses import ResponsesCall
from flashrt.protocols.responses_events import (
    Completed,
    Created,
    Event,
    FailedEvent,
    Incomplete,
    InProgress,
    ResponseEvent,
    tag_of,
)
from flashrt.protocols.responses_folding import AnswerItems
from flashrt.protocols.responses_items import COMPLETED, IN_PROGRESS, INCOMPLETE
from flashrt.protocols.responses_object import (
    IncompleteDetails,
    Response,
    ResponseError,
    ResponseUsage,
)
from flashrt.protocols.sse import event

CANCELLED, FAILED = "cancelled", "failed"

LAST: dict[str, type[ResponseEvent]] = {
    COMPLETED: Completed,
    INCOMPLETE: Incomplete,
    # The API has no event of its own for it. `response.failed` would have clients ask again.
    CANCELLED: Incomplete,
    FAILED: FailedEvent,
}
"""The one event that ends a stream, by the response's status."""

CODES = {"rate_limit_error": "rate_limit_exceeded", "server_error": "server_error"}
"""The API's word for an answer that failed, by the kind of error; all others are of the prompt."""

Keep = Callable[[Response], None]
"""What is done with a response that is over."""


def forget(response: Response) -> None:
    """Nothing."""


class Answering:
    """One response as it grows: what stream and body have in common."""

    def __init__(self, head: Head, call: Call, keep: Keep = forget) -> None:
        assert isinstance(call, ResponsesCall), "a Responses answer is of a Responses request"
        self._head = head
        self._call = call
        self._keep = keep
        self._items = AnswerItems(head.request_id, call.form)
        self._token_ids: list[int] = []
        self._untold: list[ContentLogprob] = []
        self._status = IN_PROGRESS
        self._over: Response | None = None

    def response(self) -> Response:
        """The response object as it is now."""
        head = self._head
        return self._over or msgspec.structs.replace(
            self._call.asked,
            id=response_id(head.request_id),
            created_at=head.created,
            model=head.model,
            status=self._status,
            output=self._items.items,
        )

    def taken(
        self,
        deltas: Sequence[Delta],
        token_ids: Sequence[int],
        logprobs: Sequence[TokenLogprobs],
    ) -> Iterator[Event]:
        """The events of one output."""
        self._token_ids.extend(token_ids)
        self._tell(token_ids, logprobs)
        visible = False
        for delta in joined(deltas):
            told: list[ContentLogprob] = []
            if isinstance(delta, TextDelta) and delta.text:
                visible, told, self._untold = True, self._untold, []
            yield from self._items.take(delta, told)
        if deltas and not visible:
            self._untold = []  # of thinking, or of a call

    def finished(self, reason: FinishReason, record: Record) -> Iterator[Event]:
        """The events of the end; afterwards the response is over."""
        cut = reason is FinishReason.LENGTH
        yield from self._items.end(cut=cut)
        self._end(INCOMPLETE if cut else COMPLETED, record)

    def failed(self, error: Exception) -> None:
        """The response is over, as it stands."""
        self._items.stop()
        if isinstance(error, AnswerCancelled):
            self._end(CANCELLED, self._head.record)
        elif self._over is None:
            fault = fault_of(error)
            code = CODES.get(fault.kind, "invalid_prompt")
            self._end(FAILED, self._head.record, ResponseError(code, fault.message))

    def _end(self, status: str, record: Record | None, error: ResponseError | None = None) -> None:
        self._status = status
        response = self.response()
        response.error = error
        if status == INCOMPLETE:
            response.incomplete_details = IncompleteDetails("max_output_tokens")
        if record is not None:
            response.usage = ResponseUsage.of(record)
            response.flashrt = flashrt_block(self._call, record, self._token_ids)
        self._over = response
        self._keep(response)

    def _tell(self, token_ids: Sequence[int], logprobs: Sequence[TokenLogprobs]) -> None:
        """Note the logprobs of ids; those of control tokens belong to no text."""
        texts = self._head.token_texts
        if not logprobs or texts is None:
            return
        pairs = zip(token_ids, logprobs, strict=True)
        told = [(i, one) for i, one in pairs if texts.control_literal(i) is None]
        ids = [i for i, _ in told]
        self._untold += chat_logprobs(ids, [one for _, one in told], texts).content


def response_id(request_id: str) -> str:
    """How a client names the response to a request."""
    return f"resp_{request_id}"


class ResponsesStream:
    """Writes the answer to one streamed request."""

    def __init__(self, head: Head, call: Call, keep: Keep = forget) -> None:
        self._answer = Answering(head, call, keep)
        self._written = 0

    def response(self) -> Response:
        """The response object as it is now."""
        return self._answer.response()

    def opening(self) -> bytes:
        """What is sent as soon as the request is admitted."""
        response = self.response()
        return self._events([Created(response=response), InProgress(response=response)])

    def pulse(self, progress: Block) -> bytes:
        """The same again, which says how far things are. Some clients' timers do not count
        comments as life."""
        response = self.response()
        response.flashrt = {"progress": progress}
        return self._events([InProgress(response=response)])

    def pieces(
        self,
        deltas: Sequence[Delta],
        token_ids: Sequence[int],
        logprobs: Sequence[TokenLogprobs] = (),
    ) -> bytes:
        """The events of one output."""
        return self._events(self._answer.taken(deltas, token_ids, logprobs))

    def ending(self, reason: FinishReason, record: Record, stop_string: str | None = None) -> bytes:
        """What closes the items, and the one last event."""
        return self._events(self._answer.finished(reason, record)) + self._last()

    def failure(self, error: Exception) -> bytes:
        """The one last event of an answer that failed or was cancelled."""
        self._answer.failed(error)
        return self._last()

    def _last(self) -> bytes:
        response = self.response()
        return self._events([LAST[response.status](response=response)])

    def _events(self, told: Iterable[Event]) -> bytes:
        written = b""
        for one in told:
            one.sequence_number = self._written
            self._written += 1
            written += event(one, tag_of(one))
        return written


class ResponsesBody:
    """Folds an answer into the object of one request."""

    def __init__(self, head: Head, call: Call, keep: Keep = forget) -> None:
        self._answer = Answering(head, call, keep)

    def response(self) -> Response:
        """The response object as it is now."""
        return self._answer.response()

    def add(
        self,
        deltas: Sequence[Delta],
        token_ids: Sequence[int],
        logprobs: Sequence[TokenLogprobs] = (),
    ) -> None:
        """Take in one output."""
        for _ in self._answer.taken(deltas, token_ids, logprobs):
            pass

    def ending(self, reason: FinishReason, record: Record, stop_string: str | None = None) -> bytes:
        """The object."""
        for _ in self._answer.finished(reason, record):
            pass
        return msgspec.json.encode(self.response())

    def failure(self, error: Exception) -> bytes:
        """The object of an answer that was cancelled."""
        self._answer.failed(error)
        return msgspec.json.encode(self.response())
