"""The routes. Decisions are the doorkeeper's, the protocols' and the service's."""

import msgspec
from quart import Quart, Response, request
from quart_trio import QuartTrio

from flashrt.http.desk import JSON, Desk, Dialect, Service
from flashrt.http.error_answers import add_error_answers
from flashrt.http.guard import FinishGuard
from flashrt.http.messages import add_messages_routes
from flashrt.http.openapi import document_body
from flashrt.http.options import HttpOptions
from flashrt.http.page import add_page
from flashrt.http.responses import add_responses_routes
from flashrt.http.security import Doorkeeper
from flashrt.http.sessions import SessionCounter, add_session_routes
from flashrt.protocols.chat import read_chat
from flashrt.protocols.chat_answer import ChatBody, ChatStream
from flashrt.protocols.completions import CompletionBody, CompletionStream, read_completion
from flashrt.protocols.models import check_model_name, model_body, model_list_body

PROMETHEUS = "text/plain; version=0.0.4; charset=utf-8"
OPEN_TO_ALL = frozenset({"/", "/health", "/health/ready", "/metrics"})
"""Routes that need no API key: probes have none, and nothing secret is said there."""

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
    add_error_answers(app, options)
    _add_state_routes(app, service, options, doorkeeper)
    add_page(app)
    desk = Desk(service, options, doorkeeper)
    _add_answer_routes(app, desk)
    add_messages_routes(app, desk)
    add_responses_routes(app, desk)
    add_session_routes(app, SessionCounter(service, doorkeeper, desk.body))
    app.asgi_app = FinishGuard(app.asgi_app)  # type: ignore[assignment]
    return app


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

    @app.get("/openapi.json")
    async def openapi() -> Response:
        return Response(document_body(options.version), mimetype=JSON)

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
