"""Anthropic's error object: its kinds, and the words by which clients compact."""

import json

import pytest

from flashrt.errors import (
    BadRequest,
    BodyTooLarge,
    EngineFailed,
    Forbidden,
    NotFound,
    PromptTooLong,
    QueueFull,
    Unauthorized,
    Unavailable,
)
from flashrt.protocols.error import Fault, fault_of
from flashrt.protocols.messages_error import failure_event, messages_error_body

KINDS = {
    BadRequest("x"): "invalid_request_error",
    Unauthorized("x"): "authentication_error",
    Forbidden("x"): "permission_error",
    NotFound("x"): "not_found_error",
    BodyTooLarge("x"): "request_too_large",
    QueueFull("x"): "rate_limit_error",
    EngineFailed("x"): "api_error",
    Unavailable("x"): "overloaded_error",
}


@pytest.mark.parametrize("error", KINDS, ids=lambda error: type(error).__name__)
def test_each_error_has_its_kind(error):
    """With its words, and the request's id."""
    assert json.loads(messages_error_body(fault_of(error), "r1")) == {
        "type": "error",
        "error": {"type": KINDS[error], "message": "x"},
        "request_id": "r1",
    }


@pytest.mark.parametrize(
    ("status", "kind"),
    [(405, "invalid_request_error"), (408, "timeout_error"), (501, "api_error")],
)
def test_any_other_status_has_one_too(status, kind):
    """Those of what never came to a route."""
    body = messages_error_body(Fault(status, "x", "server_error"), "r1")
    assert json.loads(body)["error"]["type"] == kind


def test_a_prompt_that_is_too_long_is_told_in_words_that_clients_know():
    """In a body and in a stream; clients look for the words and for both numbers."""
    fault = fault_of(PromptTooLong("x", prompt_tokens=9, max_tokens=7))
    for said in (messages_error_body(fault, "r"), failure_event(fault, "r")):
        assert b'"prompt is too long: 9 tokens > 7 maximum"' in said
        assert b'"invalid_request_error"' in said


def test_a_failure_is_one_event_of_its_name():
    """What was not raised on purpose keeps its words to itself."""
    event = failure_event(fault_of(ValueError("secret")), "r1")
    assert event.startswith(b'event: error\ndata: {"type":"error","error":{"type":"api_error",')
    assert event.count(b"\n\n") == 1
    assert b"secret" not in event
