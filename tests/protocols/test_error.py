"""Error objects: what a client is told, and what it is not."""

import json

from flashrt.errors import BadRequest, EngineFailed, QueueFull
from flashrt.protocols.error import error_body, error_event, error_status


def test_a_refusal_tells_everything():
    """Message, type, param and code, and the status of its class."""
    error = BadRequest("`n` is 2.", param="n")

    assert error_status(error) == 400
    assert json.loads(error_body(error)) == {
        "error": {
            "message": "`n` is 2.",
            "type": "invalid_request_error",
            "param": "n",
            "code": None,
        }
    }


def test_a_full_queue_is_a_rate_limit():
    """429 with the type that clients wait on."""
    error = QueueFull("full")

    assert error_status(error) == 429
    assert json.loads(error_body(error))["error"]["type"] == "rate_limit_error"


def test_a_failure_of_the_engine_is_the_servers():
    """500, with the words that were chosen for it."""
    body = json.loads(error_body(EngineFailed("The step failed.")))

    assert error_status(EngineFailed("x")) == 500
    assert body["error"]["type"] == "server_error"
    assert body["error"]["message"] == "The step failed."


def test_an_unforeseen_error_keeps_its_words_to_itself():
    """What was not written for a client may hold paths, prompts or keys."""
    error = ValueError("/home/someone/secret")

    assert error_status(error) == 500
    assert b"secret" not in error_body(error)


def test_an_error_event_is_one_event_and_no_terminator():
    """The frame that OpenAI's clients look for, and nothing after it."""
    written = error_event(EngineFailed("x"))

    assert written.startswith(b'data: {"error":{')
    assert written.endswith(b"}}\n\n")
    assert written.count(b"\n\n") == 1
