"""OpenAI's error object."""

import msgspec

from flashrt.errors import EngineFailed, Refused
from flashrt.protocols.sse import event


class ErrorFields(msgspec.Struct):
    """The fields of an error object."""

    message: str
    type: str
    param: str | None = None
    code: str | None = None


class ErrorObject(msgspec.Struct):
    """An error body."""

    error: ErrorFields


def error_object(error: Exception) -> ErrorObject:
    """The object for any exception. What was not raised on purpose keeps its words to itself."""
    match error:
        case Refused():
            return ErrorObject(ErrorFields(error.message, error.kind, error.param, error.code))
        case EngineFailed():
            message = str(error) or "The engine failed while it worked on this request."
            return ErrorObject(ErrorFields(message, "server_error", code="engine_failed"))
    message = "The server failed while it worked on this request; its log has the details."
    return ErrorObject(ErrorFields(message, "server_error", code="internal_error"))


def error_status(error: Exception) -> int:
    """The HTTP status for any exception."""
    return error.status if isinstance(error, Refused) else 500


def error_body(error: Exception) -> bytes:
    """The body of an error answer."""
    return msgspec.json.encode(error_object(error))


def error_event(error: Exception) -> bytes:
    """The last event of a stream that failed."""
    return event(error_object(error))
