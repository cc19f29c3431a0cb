"""Text completions: prompts, refusals, and that a stream and a body are the same answer."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flashrt.chat.deltas import TextDelta
from flashrt.errors import BadRequest
from flashrt.protocols.completions import CompletionBody, CompletionStream, read_completion
from flashrt.protocols.fields import Call
from tests.protocols.vocabulary import HEAD, FakeRecord, call, events, reasons, texts


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
        ({"echo": True}, "echo"),
        ({"suffix": "x"}, "suffix"),
        ({"logprobs": 0}, "logprobs"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"temperature": 3}, "temperature"),
    ],
)
def test_what_is_wrong_is_refused_by_name(fields, param):
    """A wrong value or an unsupported wish is a 400 whose `param` is its path."""
    with pytest.raises(BadRequest) as caught:
        read(**fields)

    assert caught.value.param == param


def test_a_prompt_is_required():
    """No prompt is a 400 that says so."""
    with pytest.raises(BadRequest, match="`prompt` is required"):
        read_completion(b"{}")


@given(st.lists(st.lists(texts)), reasons, st.booleans(), st.booleans())
def test_joined_chunks_equal_the_body(outputs, reason, include_usage, ids):
    """Streamed and buffered are the same text, reason, usage and flashrt block."""
    asked = call(include_usage=include_usage, ids=ids)
    stream, fold = CompletionStream(HEAD, asked), CompletionBody(HEAD, asked)

    written = stream.opening() + stream.pulse()
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
