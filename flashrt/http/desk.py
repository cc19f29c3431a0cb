"""One request served: body read, request opened, answered as a stream or whole."""

from collections.abc import Callable, Sequence
from typing import Protocol

import attrs
import msgspec
from quart import Response, g, request

from flashrt.chat.request import AgentRequest
from flashrt.http.body import read_body, require_json
from flashrt.http.guard import on_exit
from flashrt.http.options import HttpOptions
from flashrt.http.security import Doorkeeper
from flashrt.http.sessions import SessionService
from flashrt.http.streaming import collect, stream
from flashrt.items import Item, WorkItem
from flashrt.protocols.answer import BodyWriter, Head, StreamWriter
from flashrt.protocols.drain import read_drain
from flashrt.protocols.fields import Call
from flashrt.protocols.logprobs import TokenTexts
from flashrt.protocols.models import Card, check_model_name
from flashrt.protocols.tokens import read_detokenize, read_tokenize, text_body, tokens_body
from flashrt.stored import AnswerStore

JSON = "application/json"


class Service(SessionService, Protocol):
    """What this room needs of `flashrt.service.AgentService`."""

    @property
    def card(self) -> Card: ...
    @property
    def live(self) -> bool: ...
    @property
    def token_texts(self) -> TokenTexts: ...
    @property
    def answers(self) -> AnswerStore: ...
    async def open(self, request: AgentRequest, *, client: str, waiter: str) -> WorkItem: ...
    async def tokens(self, request: AgentRequest) -> tuple[int, ...]: ...
    async def text(self, ids: Sequence[int]) -> str: ...
    def cancel(self, item: Item) -> None: ...
    def soft_drain(self, *, undo: bool) -> None: ...
    def health(self) -> dict[str, object]: ...
    def activity(self) -> dict[str, object]: ...
    def metrics(self) -> bytes: ...
    def ready(self) -> tuple[int, dict[str, object]]: ...


@attrs.frozen
class Dialect:
    """One protocol: how a body is read, and how its answers are written."""

    read: Callable[[bytes], Call]
    stream: Callable[[Head, Call], StreamWriter]
    body: Callable[[Head, Call], BodyWriter]
    opened: Callable[[WorkItem], None] = lambda item: None
    """Told of the item as soon as there is one."""


@attrs.frozen
class Desk:
    """Serves one request of any dialect."""

    service: Service
    options: HttpOptions
    doorkeeper: Doorkeeper

    async def serve(self, dialect: Dialect) -> Response:
        """Read, open, and answer the current request, streamed or whole."""
        call = dialect.read(await self.body()).hinted(
            {name.lower(): value for name, value in request.headers}
        )
        check_model_name(call.request.model, self.service.card, strict=self.strict)
        item = await self.service.open(
            call.request,
            client=self.doorkeeper.client(request),
            waiter=self.doorkeeper.waiter(request),
        )
        on_exit(request.scope, lambda: self.service.leave(item))
        g.request_id = item.record.request_id
        dialect.opened(item)
        head = Head(
            item.record.request_id,
            item.record.created,
            call.request.model or self.service.card.model_id,
            await self._prompt_text(item) if call.echo else "",
            self.service.token_texts,
            item.record,
        )
        if not call.stream:
            return Response(await collect(item, dialect.body(head, call)), mimetype=JSON)
        pieces = stream(item, dialect.stream(head, call), heartbeat_s=self.options.heartbeat_s)
        answer = Response(pieces, mimetype="text/event-stream")
        answer.headers["Cache-Control"] = "no-cache"
        # Proxies that collect answers would hold a stream back.
        answer.headers["X-Accel-Buffering"] = "no"
        return answer

    async def tokenize(self) -> Response:
        """The ids of a prompt."""
        asked = read_tokenize(await self.body())
        check_model_name(asked.model, self.service.card, strict=self.strict)
        return Response(
            tokens_body(await self.service.tokens(asked), self.service.card), mimetype=JSON
        )

    async def detokenize(self) -> Response:
        """The text of ids."""
        ids = read_detokenize(await self.body())
        return Response(text_body(await self.service.text(ids)), mimetype=JSON)

    async def drain(self) -> Response:
        """Begin a soft drain, or end it."""
        self.service.soft_drain(undo=read_drain(await self.body()).undo)
        return Response(msgspec.json.encode(self.service.ready()[1]), mimetype=JSON)

    async def body(self) -> bytes:
        """The current request's body, declared as JSON, within the limits."""
        require_json(request)
        return await read_body(
            request,
            limit_bytes=self.options.max_body_bytes,
            timeout_s=self.options.body_timeout_s,
        )

    async def _prompt_text(self, item: WorkItem) -> str:
        """As the client wrote it; ids as they read."""
        text = item.request.text
        return await self.service.text(item.prompt.ids) if text is None else text

    @property
    def strict(self) -> bool:
        """Whether only our own model name is served."""
        return self.options.strict_model_name
