"""What an answer must be: each way of being something else is named."""

import json
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flashrt.bench.soak.answers import Stream, check_error, check_refusal, whole_answer
from flashrt.bench.soak.wire import Fault, Reply

BLOCK = {
    "terminal_state": "DONE",
    "prompt_token_ids": [1, 2, 3],
    "completion_token_ids": [4, 5],
    "cached_tokens": 1,
    "new_prefill_tokens": 2,
}
USAGE = {"prompt_tokens": 3, "completion_tokens": 2}
ERROR = {"error": {"message": "no", "type": "server_error", "param": None, "code": "c"}}
DONE = b"data: [DONE]\n\n"


def event(value):
    """As it goes over the wire."""
    return b"data: " + json.dumps(value).encode() + b"\n\n"


def chunk(finish=None, block=None, **delta):
    """A chunk of a chat answer."""
    extra = {} if block is None else {"flashrt": block}
    return event({"choices": [{"delta": delta, "finish_reason": finish}], **extra})


def call(**function):
    """A piece of a tool call."""
    return chunk(tool_calls=[{"index": 0, "function": function}])


SAID = chunk(role="assistant", content="") + b": keep-alive\n\n" + chunk(content="Hällo")
END = chunk("length", BLOCK)
WHOLE = SAID + END + DONE


def read(data):
    """The answer in the bytes of a stream."""
    stream = Stream()
    stream.feed(data)
    return stream.end()


@given(st.sets(st.integers(1, len(WHOLE) - 1)))
def test_a_stream_may_be_cut_anywhere(places):
    """Events are found again, and characters too."""
    stream, edges = Stream(), [0, *sorted(places), len(WHOLE)]
    for start, stop in pairwise(edges):
        stream.feed(WHOLE[start:stop])
    answer = stream.end()
    assert (answer.text, answer.finish) == ("Hällo", "length")
    assert (answer.prompt_ids, answer.output_ids) == ([1, 2, 3], [4, 5])


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "without an ending"),
        (SAID, "without an ending"),
        (SAID + DONE, "without a finish_reason"),
        (SAID + END, "without an ending"),
        (WHOLE + DONE, r"behind \[DONE\]"),
        (WHOLE + chunk(content="more"), r"behind \[DONE\]"),
        (SAID + END + chunk(content="more") + DONE, "a delta behind it"),
        (SAID + END + END + DONE, "a second ending"),
        (SAID + event(ERROR), "an error event: {'message': 'no'"),
        (SAID + event(ERROR) + DONE, "behind an error event"),
        (SAID + END + event(ERROR), "an error event behind a finish_reason"),
        (SAID + event({"error": "no"}), "another shape"),
        (SAID + b"event: ping\n\n", "no event"),
        (SAID + b"data: {\n\n", "not JSON"),
        (WHOLE + b"data", "behind the last event"),
        (SAID + chunk("stop") + DONE, "without a `flashrt` block"),
        (SAID + chunk("because", BLOCK) + DONE, "finish_reason 'because'"),
        (SAID + chunk("stop", {**BLOCK, "terminal_state": "ERROR"}) + DONE, "finished in ERROR"),
        (SAID + chunk("stop", {**BLOCK, "cached_tokens": 2}) + DONE, "4 prompt tokens"),
        (
            SAID + END + event({"choices": [], "usage": {**USAGE, "prompt_tokens": 9}}) + DONE,
            "usage says",
        ),
        (
            call(name="f", arguments="{") + chunk("tool_calls", BLOCK) + DONE,
            "arguments are not JSON",
        ),
    ],
)
def test_any_other_stream_is_a_fault(data, words):
    """Exactly one ending, whole events, and sums that agree."""
    with pytest.raises(Fault, match=words):
        read(data)


def test_a_call_is_put_together():
    """Its name, and its arguments from their pieces."""
    pieces = call(name="f", arguments="") + call(arguments='{"a": ') + call(arguments="1}")
    answer = read(pieces + chunk("tool_calls", BLOCK) + DONE)
    assert answer.message["tool_calls"][0]["function"] == {"name": "f", "arguments": '{"a": 1}'}


def test_a_call_that_was_cut_off_is_not_read():
    """A stream shows the pieces of it; the finish_reason says that they are no call."""
    assert read(call(name="f", arguments='{"a"') + END + DONE).finish == "length"


def test_a_buffered_answer_is_held_to_the_same():
    """Chat and text completions."""
    said = {"finish_reason": "stop", "message": {"role": "assistant", "content": "x"}}
    text = {"finish_reason": "stop", "text": "x"}
    for choice in (said, text):
        body = {"choices": [choice], "flashrt": BLOCK, "usage": USAGE}
        assert whole_answer(body).text == "x"
        for field in body:
            with pytest.raises(Fault, match=field):
                whole_answer({k: v for k, v in body.items() if k != field})
        with pytest.raises(Fault, match="a body without"):
            whole_answer({**body, "choices": [choice, choice]})


@pytest.mark.parametrize("body", [[], {}, {"error": "x"}, {"error": {"message": "x"}}])
def test_an_error_has_the_protocols_shape(body):
    """An object with all four fields, and a message."""
    check_error(ERROR)
    with pytest.raises(Fault, match="another shape"):
        check_error(body)


def test_an_error_shows_nothing_of_the_servers_inside():
    """No traceback."""
    inside = {**ERROR["error"], "message": "Traceback (most recent call last)"}
    with pytest.raises(Fault, match="traceback"):
        check_error({"error": inside})


def test_a_refusal_has_one_of_the_statuses_and_the_code():
    """A full queue also says when to come back."""
    body = json.dumps(ERROR).encode()
    busy = Reply(429, {"retry-after": "2"}, body)
    check_refusal(busy, frozenset({429}), "c")
    for reply, words in (
        (Reply(500, {}, body), "status 500"),
        (Reply(429, {}, body), "Retry-After"),
        (Reply(429, {"retry-after": "0"}, body), "Retry-After"),
        (Reply(429, {"retry-after": "1"}, b"no"), "not JSON"),
    ):
        with pytest.raises(Fault, match=words):
            check_refusal(reply, frozenset({429}))
    with pytest.raises(Fault, match="code 'c', not 'd'"):
        check_refusal(busy, frozenset({429}), "d")
