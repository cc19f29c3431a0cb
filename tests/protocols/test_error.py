"""Error objects: what a client is told, and what it is not."""

import json

from flashrt.errors import BadRequest, EngineFailed, PromptTooLong, QueueFull
from flashrt.protocols.error import error_body, error_event, fault_of


def test_a_refusal_tells_everything():
    """Message, type, param and code, and the status of its class."""
    error = BadRequest("`n` is 2.", param="n")

    assert fault_of(error).status == 400
    assert json.loads(error_body(fault_of(error))) == {
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

    assert fault_of(error).status == 429
    assert json.loads(error_body(fault_of(error)))["error"]["type"] == "rate_limit_error"


def test_a_failure_of_the_engine_is_the_servers():
    """500, with the words that were chosen for it."""
    body = json.loads(error_body(fault_of(EngineFailed("The step failed."))))

    assert fault_of(EngineFailed("x")).status == 500
    assert body["error"]["type"] == "server_error"
    assert body["error"]["message"] == "The step failed."


def test_an_unforeseen_error_keeps_its_words_to_itself():
    """What was not written for a client may hold paths, prompts or keys."""
    error = ValueError("/home/someone/secret")

    assert fault_of(error).status == 500
    assert b"secret" not in error_body(fault_of(error))


def test_a_prompt_that_is_too_long_says_how_long_apart_from_its_words():
    """A protocol may have words of its own for it, with the same numbers."""
    fault = fault_of(PromptTooLong("too long", prompt_tokens=9, max_tokens=7))

    assert (fault.prompt_tokens, fault.max_tokens) == (9, 7)
    assert fault.code == "context_length_exceeded"


def test_an_error_event_is_one_event_and_no_terminator():
    """The frame that OpenAI's clients look for, and nothing after it."""
    written = error_event(EngineFailed("x"))

    assert written.startswith(b'data: {"error":{')
    assert written.endswith(b"}}\n\n")
    assert written.count(b"\n\n") == 1
