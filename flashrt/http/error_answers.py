"""Errors before an answer has begun, each in the words of the protocol whose route was asked."""

import logging
from collections.abc import Callable
from http import HTTPStatus

import attrs
from quart import Quart, Response, request
from werkzeug.exceptions import HTTPException

from flashrt.errors import EngineFailed, FlashRTError, PromptTooLong, Refused
from flashrt.http.options import HttpOptions
from flashrt.protocols.error import Fault, error_body, fault_of

log = logging.getLogger("flashrt.http")

BODIES: dict[str, Callable[[Fault], bytes]] = {}
"""By how a path begins; OpenAI's object for all others."""


def add_error_answers(app: Quart, options: HttpOptions) -> None:
    """Answer every exception of a route."""

    @app.errorhandler(FlashRTError)
    async def known(error: FlashRTError) -> Response:
        fault = fault_of(error)
        if isinstance(error, PromptTooLong):
            fault = attrs.evolve(fault, status=options.overflow_status)
        answer = _answer(fault)
        if isinstance(error, Refused) and error.retry_after_s is not None:
            answer.headers["Retry-After"] = str(error.retry_after_s)
        if isinstance(error, EngineFailed):
            log.error("an answer failed: %s", error)
        return answer

    @app.errorhandler(HTTPException)
    async def from_quart(error: HTTPException) -> Response:
        status = HTTPStatus(error.code or 500)
        kind = "server_error" if status >= 500 else "invalid_request_error"
        words = error.description or status.phrase
        answer = _answer(Fault(status.value, words, kind, status.name.lower()))
        answer.headers.extend(
            (name, value) for name, value in error.get_headers() if name.lower() == "allow"
        )
        return answer

    @app.errorhandler(Exception)
    async def unforeseen(error: Exception) -> Response:
        log.error("a request failed", exc_info=error)
        return _answer(fault_of(error))


def _answer(fault: Fault) -> Response:
    spell = next((BODIES[start] for start in BODIES if request.path.startswith(start)), error_body)
    return Response(spell(fault), status=fault.status, mimetype="application/json")
