"""What an error says, and OpenAI's object for it."""

import attrs
import msgspec

from flashrt.errors import EngineFailed, PromptTooLong, Refused
from flashrt.protocols.sse import event


@attrs.frozen
class Fault:
    """What an error says, before a protocol spells it. `kind` and `code` are OpenAI's words.

    `prompt_tokens` and `max_tokens`: of a prompt that is too long, and the most that there may be.
    """

    status: int
    message: str
    kind: str
    code: str | None = None
    param: str | None = None
    prompt_tokens: int | None = None
    max_tokens: int | None = None


def fault_of(error: Exception) -> Fault:
    """Of any exception. What was not raised on purpose keeps its words to itself."""
    match error:
        case PromptTooLong(prompt_tokens=tokens, max_tokens=limit):
            return attrs.evolve(_refusal(error), prompt_tokens=tokens, max_tokens=limit)
        case Refused():
            return _refusal(error)
        case EngineFailed():
            message = str(error) or "The engine failed while it worked on this request."
            return Fault(500, message, "server_error", "engine_failed")
    message = "The server failed while it worked on this request; its log has the details."
    return Fault(500, message, "server_error", "internal_error")


def _refusal(error: Refused) -> Fault:
    return Fault(error.status, error.message, error.kind, error.code, error.param)


class ErrorFields(msgspec.Struct):
    """The fields of an error object."""

    message: str
    type: str
    param: str | None = None
    code: str | None = None


class ErrorObject(msgspec.Struct):
    """An error body."""

    error: ErrorFields


def error_body(fault: Fault) -> bytes:
    """The body of an error answer."""
    return msgspec.json.encode(_object(fault))


def error_event(error: Exception) -> bytes:
    """The last event of a stream that failed."""
    return event(_object(fault_of(error)))


def _object(fault: Fault) -> ErrorObject:
    return ErrorObject(ErrorFields(fault.message, fault.kind, fault.param, fault.code))
