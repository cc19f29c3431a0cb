"""Errors before an answer has begun, each in the words of the protocol whose route was asked."""

import logging
from collections.abc import Callable, Mapping
from http import HTTPStatus
from typing import TypeVar

import attrs
from quart import Quart, Response, request
from werkzeug.exceptions import HTTPException

from flashrt.errors import EngineFailed, FlashRTError, PromptTooLong, QueueFull, Refused
from flashrt.http.messages import PATH as MESSAGES_PATH
from flashrt.http.messages import refusal as messages_refusal
from flashrt.http.options import HttpOptions
from flashrt.http.responses import PATH as RESPONSES_PATH
from flashrt.protocols.error import Fault, error_body, fault_of
from flashrt.protocols.messages_error import OVERFLOW_STATUS

log = logging.getLogger("flashrt.http")

T = TypeVar("T")

BODIES: Mapping[str, Callable[[Fault], bytes]] = {MESSAGES_PATH: messages_refusal}
"""By how a path begins; OpenAI's object for all others."""

OVERFLOW_STATUSES: Mapping[str, int] = {
    MESSAGES_PATH: OVERFLOW_STATUS,
    # Codex asks again and again after a 413, and knows a 400 for what it is.
    RESPONSES_PATH: 400,
}
"""Of a prompt that is too long, by how a path begins; --overflow-status for all others."""

# Codex gives up at once on a 429, and waits as long as a 503 says.
FULL_STATUSES: Mapping[str, int] = {RESPONSES_PATH: 503}
"""Of a full queue, by how a path begins; 429 for all others."""


def add_error_answers(app: Quart, options: HttpOptions) -> None:
    """Answer every exception of a route."""

    @app.errorhandler(FlashRTError)
    async def known(error: FlashRTError) -> Response:
        fault = fault_of(error)
        answer = _answer(attrs.evolve(fault, status=_status(error, fault, options)))
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


def _status(error: FlashRTError, fault: Fault, options: HttpOptions) -> int:
    match error:
        case PromptTooLong():
            return _of_path(OVERFLOW_STATUSES, options.overflow_status)
        case QueueFull():
            return _of_path(FULL_STATUSES, fault.status)
    return fault.status


def _of_path(table: Mapping[str, T], otherwise: T) -> T:
    """What the current request's path has in a table."""
    found = (value for start, value in table.items() if request.path.startswith(start))
    return next(found, otherwise)


def _answer(fault: Fault) -> Response:
    spell = _of_path(BODIES, error_body)
    return Response(spell(fault), status=fault.status, mimetype="application/json")
