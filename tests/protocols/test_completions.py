"""Text completions: prompts, refusals, and that a stream and a body are the same answer."""

import json

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flashrt.chat.deltas import FinishReason, TextDelta
from flashrt.errors import BadRequest
from flashrt.protocols.completions import CompletionBody, CompletionStream, read_completion
from flashrt.protocols.fields import Call
from tests.protocols.vocabulary import (
    HEAD,
    NO_PINS,
    PIN_WISHES,
    FakeRecord,
    call,
    events,
    reasons,
    texts,
)


def read(**fields: object) -> Call:
    return read_completion(json.dumps({"prompt": "a", **fields}).encode())


@pytest.mark.parametrize(
    ("prompt", "text", "ids"),
    [
        ("a", "a", None),
        ("", "", None),
        (["a"], "a", None),
        ([1, 2], None, (1, 2)),
        ([[1, 2]], None, (1, 2)),
        ([7], None, (7,)),
    ],
)
def test_a_prompt_is_text_or_ids(prompt, text, ids):
    """A string, a list of ids, or a list with one of either."""
    request = read(prompt=prompt).request

    assert (request.text, request.ids, request.is_chat) == (text, ids, False)


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"prompt": []}, "prompt"),
        ({"prompt": [[]]}, "prompt"),
        ({"prompt": ["a", "b"]}, "prompt"),
        ({"prompt": [[1], [2]]}, "prompt"),
        ({"prompt": [1, "a"]}, "prompt"),
        ({"prompt": [-1]}, "prompt"),
        ({"prompt": [1.5]}, "prompt[0]"),
        ({"prompt": None}, "prompt"),
        ({"prompt": {"a": 1}}, "prompt"),
        ({"n": 2}, "n"),
        ({"best_of": 2}, "best_of"),
        ({"suffix": "x"}, "suffix"),
        ({"logprobs": 6}, "logprobs"),
        ({"logprobs": -1}, "logprobs"),
        ({"logprobs": 0, "echo": True}, "logprobs"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"temperature": 3}, "temperature"),
        ({"flashrt_draft_tokens": 64}, "flashrt_draft_tokens"),
        ({"flashrt_draft_tokens": True}, "flashrt_draft_tokens"),
    ],
)
def test_what_is_wrong_is_refused_by_name(fields, param):
    """A wrong value or an unsupported wish is a 400 whose `param` is its path."""
    with pytest.raises(BadRequest) as caught:
        read(**fields)

    assert caught.value.param == param


@pytest.mark.parametrize("wish", [None, 0, 63])
def test_a_wish_for_drafts_arrives(wish):
    """0 is a wish: no drafts; without the field there is none."""
    assert read(flashrt_draft_tokens=wish).request.draft_tokens == wish


@pytest.mark.parametrize("wish", PIN_WISHES)
def test_a_wish_to_pin_arrives_as_it_is(wish):
    """True is the system turn and 1 is one token; False and 0 let go, null wishes nothing."""
    arrived = read(flashrt_pin_prefix=wish).request.pin_prefix

    assert (arrived, type(arrived)) == (wish, type(wish))


@pytest.mark.parametrize("wish", NO_PINS, ids=lambda wish: wish[:9])
def test_what_is_no_pin_is_refused_by_name(wish):
    """A length below 0, a fraction, a text, and a number that nobody can read."""
    with pytest.raises(BadRequest, match="`flashrt_pin_prefix`") as caught:
        read_completion(f'{{"prompt": "a", "flashrt_pin_prefix": {wish}}}'.encode())

    assert caught.value.param == "flashrt_pin_prefix"


@pytest.mark.parametrize("wish", [None, 0, 5])
def test_a_wish_for_logprobs_arrives(wish):
    """0 is a wish: the sampled token alone."""
    assert read(logprobs=wish).request.sampling.logprobs == wish


def test_a_prompt_is_required():
    """No prompt is a 400 that says so."""
    with pytest.raises(BadRequest, match="`prompt` is required"):
        read_completion(b"{}")


@given(st.lists(st.lists(texts)), reasons, st.booleans(), st.booleans())
def test_joined_chunks_equal_the_body(outputs, reason, include_usage, ids):
    """Streamed and buffered are the same text, reason, usage and flashrt block."""
    asked = call(include_usage=include_usage, ids=ids)
    stream, fold = CompletionStream(HEAD, asked), CompletionBody(HEAD, asked)

    written = stream.opening() + stream.pulse({})
    for output in outputs:
        deltas = [TextDelta(text) for text in output]
        written += stream.pieces(deltas, range(len(output)))
        fold.add(deltas, range(len(output)))
    *chunks, done = events(written + stream.ending(reason, FakeRecord()))
    body = json.loads(fold.ending(reason, FakeRecord()))

    choices = [choice for chunk in chunks for choice in chunk["choices"]]
    assert done == "[DONE]"
    assert "".join(c["text"] for c in choices) == body["choices"][0]["text"]
    assert [c["finish_reason"] for c in choices if c["finish_reason"]] == [reason.value]
    assert body["choices"][0]["finish_reason"] == reason.value
    assert chunks[-1]["flashrt"] == body["flashrt"]
    assert {chunk["object"] for chunk in chunks} == {body["object"]} == {"text_completion"}
    assert chunks[-1].get("usage") == (body["usage"] if include_usage else None)


def test_an_echo_is_the_prompt_in_front_of_the_answer():
    """Once, streamed or buffered; it is not part of the answer's ids."""
    head = attrs.evolve(HEAD, prompt_text="once ")
    assert read(echo=True).echo
    stream, fold = CompletionStream(head, call(ids=True)), CompletionBody(head, call(ids=True))
    written = stream.opening() + stream.pulse({}) + stream.pieces([TextDelta("upon")], [7])
    fold.add([TextDelta("upon")], [7])
    *chunks, _ = events(written + stream.ending(FinishReason.STOP, FakeRecord()))
    body = json.loads(fold.ending(FinishReason.STOP, FakeRecord()))
    assert "".join(chunk["choices"][0]["text"] for chunk in chunks) == "once upon"
    assert body["choices"][0]["text"] == "once upon"
    assert body["flashrt"]["completion_token_ids"] == [7]
