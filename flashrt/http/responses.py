"""The routes of Responses: an answer, and what becomes of it by its id."""

from collections.abc import Callable

import attrs
import msgspec
import trio
from quart import Quart, Response, request

from flashrt.chat.request import Json
from flashrt.errors import AnswerCancelled, BadRequest, NotFound
from flashrt.http.desk import JSON, Desk, Dialect
from flashrt.http.guard import on_exit
from flashrt.items import WorkItem
from flashrt.protocols.answer import Head
from flashrt.protocols.fields import Call
from flashrt.protocols.models import check_model_name
from flashrt.protocols.responses import ResponsesCall, read_responses
from flashrt.protocols.responses_answer import (
    CANCELLED,
    ResponsesBody,
    ResponsesStream,
    response_id,
)
from flashrt.protocols.responses_listing import item_page, read_page
from flashrt.protocols.responses_object import DeletedResponse, InputTokens
from flashrt.protocols.responses_object import Response as ResponseObject
from flashrt.stored import AnswerStore, StoredAnswer, written

PATH = "/v1/responses"

CANCEL_WAIT_S = 10.0
"""How long a cancel waits for the boundary at which the answer ends, so as to show all of it."""


@attrs.define(eq=False)
class Exchange:
    """One request and its answer, from the body's first byte to the stream's last."""

    client: str
    store: AnswerStore
    opened: Callable[["Exchange", WorkItem], None]
    item: WorkItem | None = None
    writer: ResponsesStream | ResponsesBody | None = None
    over: trio.Event = attrs.field(factory=trio.Event)
    forgotten: bool = False

    @property
    def dialect(self) -> Dialect:
        """The protocol, with this client's past."""
        return Dialect(self._read, self._stream, self._body, self._opened)

    def answer(self, earlier_id: str) -> StoredAnswer | None:
        """An answer of this client's that was kept."""
        return self.store.find(self.client, earlier_id)

    def item_of(self, item_id: str) -> Json | None:
        """An item of such an answer. Its id has the request's in it."""
        found = self.answer(response_id(item_id.partition("_")[2].rpartition("_")[0]))
        items: list[Json] = [msgspec.json.decode(text) for text in found.output] if found else []
        return next((item for item in items if item["id"] == item_id), None)

    def response(self, status: str | None = None) -> ResponseObject:
        """The response object as it is now."""
        assert self.writer is not None, "an answer that runs is written"
        now = self.writer.response()
        return now if status is None else msgspec.structs.replace(now, status=status)

    def _read(self, body: bytes) -> Call:
        return read_responses(body, self)

    def _stream(self, head: Head, call: Call) -> ResponsesStream:
        self.writer = ResponsesStream(head, call, lambda response: self._keep(call, response))
        return self.writer

    def _body(self, head: Head, call: Call) -> ResponsesBody:
        self.writer = ResponsesBody(head, call, lambda response: self._keep(call, response))
        return self.writer

    def _opened(self, item: WorkItem) -> None:
        self.item = item
        self.opened(self, item)

    def _keep(self, call: Call, response: ResponseObject) -> None:
        self.over.set()
        assert isinstance(call, ResponsesCall), "this dialect reads no other calls"
        if not call.stores or self.forgotten:
            return
        texts = call.earlier.texts if isinstance(call.earlier, StoredAnswer) else ()
        without = msgspec.structs.replace(response, output=[])
        self.store.keep(
            StoredAnswer(
                self.client,
                response.id,
                msgspec.json.encode(without),
                (*texts, *written(call.new)),
                tuple(msgspec.json.encode(item) for item in response.output),
                call.request.hints,
            )
        )


@attrs.frozen
class ResponseDesk:
    """Serves responses. `running`: the answers that are not over, by client and id."""

    desk: Desk
    running: dict[tuple[str, str], Exchange] = attrs.field(factory=dict)

    async def create(self) -> Response:
        """Answer the current request."""
        exchange = Exchange(self._client(), self.desk.service.answers, self._began)
        try:
            return await self.desk.serve(exchange.dialect)
        except AnswerCancelled as ended:
            assert isinstance(exchange.writer, ResponsesBody), "a stream says itself how it ends"
            return Response(exchange.writer.failure(ended), mimetype=JSON)

    async def count(self) -> Response:
        """How many tokens the prompt of such a request has."""
        exchange = Exchange(self._client(), self.desk.service.answers, self._began)
        asked = read_responses(await self.desk.body(), exchange).request
        check_model_name(asked.model, self.desk.service.card, strict=self.desk.strict)
        return _object(InputTokens(len(await self.desk.service.tokens(asked))))

    def show(self, name: str) -> Response:
        """An answer as it is now."""
        if request.args.get("stream") == "true":
            raise BadRequest(
                "`stream` true is not supported here: what a stream said is not kept. Ask without "
                "it for the response object as it is now.",
                param="stream",
            )
        exchange = self.running.get((self._client(), name))
        if exchange is not None and exchange.writer is not None:
            return _object(exchange.response())
        return Response(self._stored(name).body, mimetype=JSON)

    def delete(self, name: str) -> Response:
        """Let go of an answer that was kept; one that is not over will not be."""
        exchange = self.running.get((self._client(), name))
        if exchange is not None:
            exchange.forgotten = True
            return _object(DeletedResponse(name))
        self._stored(name)
        self.desk.service.answers.delete(self._client(), name)
        return _object(DeletedResponse(name))

    def list_input(self, name: str) -> Response:
        """The items that the answer was given to."""
        page = read_page(request.args.to_dict(flat=False))
        return Response(item_page(name, self._stored(name).input, page), mimetype=JSON)

    async def cancel(self, name: str) -> Response:
        """End an answer at its next boundary, and show it; one that is over is shown as it is."""
        exchange = self.running.get((self._client(), name))
        if exchange is None or exchange.writer is None or exchange.item is None:
            return Response(self._stored(name).body, mimetype=JSON)
        self.desk.service.cancel(exchange.item)
        with trio.move_on_after(CANCEL_WAIT_S) as waited:
            await exchange.over.wait()
        # Who does not read its stream is told later; that the answer ends is sure.
        return _object(exchange.response(CANCELLED if waited.cancelled_caught else None))

    def _client(self) -> str:
        return self.desk.doorkeeper.client(request)

    def _stored(self, name: str) -> StoredAnswer:
        found = self.desk.service.answers.find(self._client(), name)
        if found is None:
            raise NotFound(
                f"Response with id '{name[:100]}' not found. It was asked for with `store` false, "
                "was deleted, or is too old.",
                param="response_id",
            )
        return found

    def _began(self, exchange: Exchange, item: WorkItem) -> None:
        place = (exchange.client, response_id(item.record.request_id))
        self.running[place] = exchange

        def ended() -> None:
            del self.running[place]
            exchange.over.set()

        on_exit(request.scope, ended)


def add_responses_routes(app: Quart, desk: Desk) -> None:
    """`/v1/responses` and what lies below it."""
    responses = ResponseDesk(desk)

    @app.post(PATH)
    async def create_response() -> Response:
        return await responses.create()

    @app.post(f"{PATH}/input_tokens")
    async def count_input_tokens() -> Response:
        return await responses.count()

    @app.get(f"{PATH}/<response_id>")
    async def show_response(response_id: str) -> Response:
        return responses.show(response_id)

    @app.delete(f"{PATH}/<response_id>")
    async def delete_response(response_id: str) -> Response:
        return responses.delete(response_id)

    @app.get(f"{PATH}/<response_id>/input_items")
    async def list_input_items(response_id: str) -> Response:
        return responses.list_input(response_id)

    @app.post(f"{PATH}/<response_id>/cancel")
    async def cancel_response(response_id: str) -> Response:
        return await responses.cancel(response_id)


def _object(value: object) -> Response:
    return Response(msgspec.json.encode(value), mimetype=JSON)
