"""The routes. Decisions are the doorkeeper's, the protocols' and the service's."""

import logging
from collections.abc import Callable, Sequence
from http import HTTPStatus
from typing import Protocol

import attrs
import msgspec
from quart import Quart, Response, request
from quart_trio import QuartTrio
from werkzeug.exceptions import HTTPException

from flashrt.chat.request import AgentRequest
from flashrt.errors import EngineFailed, FlashRTError, PromptTooLong, Refused
from flashrt.http.body import read_body, require_json
from flashrt.http.guard import FinishGuard, on_exit
from flashrt.http.openapi import document
from flashrt.http.options import HttpOptions
from flashrt.http.page import add_page
from flashrt.http.security import Doorkeeper
from flashrt.http.sessions import SessionCounter, SessionService, add_session_routes
from flashrt.http.streaming import collect, stream
from flashrt.items import WorkItem
from flashrt.protocols.answer import BodyWriter, Head, StreamWriter
from flashrt.protocols.chat import read_chat
from flashrt.protocols.chat_answer import ChatBody, ChatStream
from flashrt.protocols.completions import CompletionBody, CompletionStream, read_completion
from flashrt.protocols.drain import read_drain
from flashrt.protocols.error import ErrorFields, ErrorObject, error_body, error_status
from flashrt.protocols.fields import Call
from flashrt.protocols.logprobs import TokenTexts
from flashrt.protocols.models import Card, check_model_name, model_body, model_list_body
from flashrt.protocols.tokens import read_detokenize, read_tokenize, text_body, tokens_body

log = logging.getLogger("flashrt.http")

JSON = "application/json"
PROMETHEUS = "text/plain; version=0.0.4; charset=utf-8"
OPEN_TO_ALL = frozenset({"/", "/health", "/health/ready", "/metrics"})
"""Routes that need no API key: probes have none, and nothing secret is said there."""


class Service(SessionService, Protocol):
    """What this room needs of `flashrt.service.AgentService`."""

    @property
    def card(self) -> Card: ...
    @property
    def live(self) -> bool: ...
    @property
    def token_texts(self) -> TokenTexts: ...
    async def open(self, request: AgentRequest, *, client: str, waiter: str) -> WorkItem: ...
    async def tokens(self, request: AgentRequest) -> tuple[int, ...]: ...
    async def text(self, ids: Sequence[int]) -> str: ...
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


CHAT = Dialect(read_chat, ChatStream, ChatBody)
COMPLETION = Dialect(read_completion, CompletionStream, CompletionBody)


def make_app(service: Service, options: HttpOptions) -> QuartTrio:
    """The ASGI application of one server."""
    app = QuartTrio("flashrt", static_folder=None)
    # quart's own time limits would cut streams short without a word.
    app.config.update(
        MAX_CONTENT_LENGTH=options.max_body_bytes, BODY_TIMEOUT=None, RESPONSE_TIMEOUT=None
    )
    app.url_map.merge_slashes = False
    doorkeeper = Doorkeeper(options)
    _add_door(app, doorkeeper, options)
    _add_error_answers(app, options)
    _add_state_routes(app, service, options, doorkeeper)
    add_page(app)
    desk = Desk(service, options, doorkeeper)
    _add_answer_routes(app, desk)
    add_session_routes(app, SessionCounter(service, doorkeeper, desk.body))
    app.asgi_app = FinishGuard(app.asgi_app)  # type: ignore[assignment]
    return app


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
        head = Head(
            item.record.request_id,
            item.record.created,
            call.request.model or self.service.card.model_id,
            await self._prompt_text(item) if call.echo else "",
            self.service.token_texts,
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
        return _json(self.service.ready()[1], 200)

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


def _add_door(app: Quart, doorkeeper: Doorkeeper, options: HttpOptions) -> None:
    @app.before_request
    async def check() -> Response | None:
        doorkeeper.check_source(request)
        preflight = doorkeeper.preflight(request)
        if preflight is None and request.path not in OPEN_TO_ALL:
            doorkeeper.client(request)
        return preflight

    @app.after_request
    async def mark(answer: Response) -> Response:
        doorkeeper.mark(request, answer)
        if options.server_name is not None:
            answer.headers["x-flashrt-worker"] = options.server_name
        return answer


def _add_error_answers(app: Quart, options: HttpOptions) -> None:
    @app.errorhandler(FlashRTError)
    async def known(error: FlashRTError) -> Response:
        too_long = isinstance(error, PromptTooLong)
        status = options.overflow_status if too_long else error_status(error)
        answer = Response(error_body(error), status=status, mimetype=JSON)
        if isinstance(error, Refused) and error.retry_after_s is not None:
            answer.headers["Retry-After"] = str(error.retry_after_s)
        if isinstance(error, EngineFailed):
            log.error("an answer failed: %s", error)
        return answer

    @app.errorhandler(HTTPException)
    async def from_quart(error: HTTPException) -> Response:
        status = HTTPStatus(error.code or 500)
        kind = "server_error" if status >= 500 else "invalid_request_error"
        fields = ErrorFields(error.description or status.phrase, kind, code=status.name.lower())
        answer = Response(
            msgspec.json.encode(ErrorObject(fields)), status=status.value, mimetype=JSON
        )
        answer.headers.extend(
            (name, value) for name, value in error.get_headers() if name.lower() == "allow"
        )
        return answer

    @app.errorhandler(Exception)
    async def unforeseen(error: Exception) -> Response:
        log.error("a request failed", exc_info=error)
        return Response(error_body(error), status=500, mimetype=JSON)


def _add_state_routes(
    app: Quart, service: Service, options: HttpOptions, doorkeeper: Doorkeeper
) -> None:
    @app.get("/health")
    async def health() -> Response:
        # A probe has no key, and needs only what is counted.
        activity = service.activity() if doorkeeper.admits(request) else None
        return _json({**service.health(), "activity": activity}, 200 if service.live else 503)

    @app.get("/health/ready")
    async def ready() -> Response:
        status, report = service.ready()
        return _json(report, status)

    @app.get("/metrics")
    async def metrics() -> Response:
        return Response(service.metrics(), content_type=PROMETHEUS)

    described = msgspec.json.encode(document(options.version))

    @app.get("/openapi.json")
    async def openapi() -> Response:
        return Response(described, mimetype=JSON)

    @app.get("/v1/models")
    async def models() -> Response:
        return Response(model_list_body(service.card), mimetype=JSON)

    @app.get("/v1/models/<path:name>")
    async def model(name: str) -> Response:
        check_model_name(name, service.card, strict=options.strict_model_name)
        return Response(model_body(service.card), mimetype=JSON)


def _add_answer_routes(app: Quart, desk: Desk) -> None:
    @app.post("/v1/chat/completions")
    async def chat_completions() -> Response:
        return await desk.serve(CHAT)

    @app.post("/v1/completions")
    async def completions() -> Response:
        return await desk.serve(COMPLETION)

    @app.post("/tokenize")
    async def tokenize() -> Response:
        return await desk.tokenize()

    @app.post("/detokenize")
    async def detokenize() -> Response:
        return await desk.detokenize()

    @app.post("/admin/drain")
    async def drain() -> Response:
        return await desk.drain()


def _json(value: object, status: int) -> Response:
    return Response(msgspec.json.encode(value), status=status, mimetype=JSON)
