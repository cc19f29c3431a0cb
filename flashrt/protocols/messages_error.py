"""Anthropic's error object."""

from collections.abc import Mapping
from types import MappingProxyType

import msgspec

from flashrt.protocols.error import Fault
from flashrt.protocols.sse import event

KINDS: Mapping[int, str] = MappingProxyType(
    {
        401: "authentication_error",
        403: "permission_error",
        404: "not_found_error",
        408: "timeout_error",
        413: "request_too_large",
        429: "rate_limit_error",
        503: "overloaded_error",
    }
)
"""By status; any other below 500 is a wrong request, and any other is ours."""

OVERFLOW_STATUS = 400
"""Of a prompt that is too long. Clients compact on it, and take a 413 for a body too large."""


class MessagesFault(msgspec.Struct):
    """What an error says."""

    type: str
    message: str


class MessagesError(msgspec.Struct, tag="error"):
    """An error body, and the last event of a stream that failed."""

    error: MessagesFault
    request_id: str


def messages_error_body(fault: Fault, request_id: str) -> bytes:
    """The body of an error answer."""
    return msgspec.json.encode(_object(fault, request_id))


def failure_event(fault: Fault, request_id: str) -> bytes:
    """The last event of a stream that failed."""
    return event(_object(fault, request_id), "error")


def _object(fault: Fault, request_id: str) -> MessagesError:
    if fault.prompt_tokens is not None:
        # The words by which clients know that they must compact.
        words = f"prompt is too long: {fault.prompt_tokens} tokens > {fault.max_tokens} maximum"
        return MessagesError(MessagesFault("invalid_request_error", words), request_id)
    ours = "api_error" if fault.status >= 500 else "invalid_request_error"
    return MessagesError(MessagesFault(KINDS.get(fault.status, ours), fault.message), request_id)
