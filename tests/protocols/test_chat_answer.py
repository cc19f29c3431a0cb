"""Chat answers: what clients need of a stream, and that a body is the same answer."""

import json

from hypothesis import given
from hypothesis import strategies as st

from flashrt.chat.deltas import (
    Delta,
    FinishReason,
    TextDelta,
    ThinkingDelta,
    ToolCallArguments,
    ToolCallEnd,
    ToolCallStart,
)
from flashrt.protocols.chat_answer import ChatBody, ChatStream
from flashrt.protocols.fields import Call
from tests.protocols.vocabulary import HEAD, FakeRecord, answers, call, events, joined_message
from tests.protocols.vocabulary import reasons as finish_reasons


def streamed(
    outputs: list[list[Delta]],
    asked: Call,
    reason: FinishReason = FinishReason.STOP,
) -> bytes:
    writer = ChatStream(HEAD, asked)
    written = writer.opening()
    for output in outputs:
        written += writer.pieces(output, range(len(output)))
    return written + writer.ending(reason, FakeRecord())


def buffered(
    outputs: list[list[Delta]], asked: Call, reason: FinishReason = FinishReason.STOP
) -> dict:
    writer = ChatBody(HEAD, asked)
    for output in outputs:
        writer.add(output, range(len(output)))
    return json.loads(writer.ending(reason, FakeRecord()))


@given(answers(), finish_reasons, st.booleans(), st.booleans())
def test_joined_chunks_equal_the_body(outputs, reason, include_usage, ids):
    """Streamed and buffered are the same answer: message, reason, usage and flashrt block."""
    asked = call(include_usage=include_usage, ids=ids)

    *chunks, done = events(streamed(outputs, asked, reason))
    body = buffered(outputs, asked, reason)

    message = body["choices"][0]["message"]
    joined = joined_message(chunks)
    assert done == "[DONE]"
    assert joined["role"] == message["role"] == "assistant"
    assert joined["content"] == (message["content"] or "")
    assert joined["reasoning_content"] == message.get("reasoning_content", "")
    assert joined["tool_calls"] == message.get("tool_calls", [])
    assert joined["finish_reason"] == body["choices"][0]["finish_reason"] == reason.value
    assert chunks[-1]["flashrt"] == body["flashrt"]
    if include_usage:
        assert chunks[-1]["usage"] == body["usage"]


@given(answers())
def test_an_answer_cut_in_other_places_is_the_same_answer(outputs):
    """How outputs are cut changes neither the joined stream nor the body."""
    whole = [[delta for output in outputs for delta in output]]

    assert joined_message(events(streamed(outputs, call()))[:-1]) == joined_message(
        events(streamed(whole, call()))[:-1]
    )
    assert buffered(outputs, call()) == buffered(whole, call())


def test_a_stream_opens_with_the_role_and_no_text():
    """The first chunk has the role, an empty text and a null finish reason."""
    first = events(ChatStream(HEAD, call()).opening())[0]

    assert first == {
        "id": "chatcmpl-r1",
        "object": "chat.completion.chunk",
        "created": 1_700_000_000,
        "model": "any-name",
        "choices": [
            {"index": 0, "delta": {"role": "assistant", "content": ""}, "finish_reason": None}
        ],
    }


def test_deltas_become_the_fields_that_clients_read():
    """Thinking is `reasoning_content`; a call starts with index, id, type, name and ""."""
    outputs: list[list[Delta]] = [
        [ThinkingDelta("hm"), TextDelta("ok")],
        [
            ToolCallStart(0, "call_a", "ls"),
            ToolCallArguments(0, '{"p"'),
            ToolCallArguments(0, ":1}"),
        ],
    ]

    chunks = events(streamed(outputs, call(), FinishReason.TOOL_CALLS))

    deltas = [chunk["choices"][0]["delta"] for chunk in chunks[1:-1]]
    assert deltas == [
        {"reasoning_content": "hm"},
        {"content": "ok"},
        {
            "tool_calls": [
                {
                    "index": 0,
                    "id": "call_a",
                    "type": "function",
                    "function": {"name": "ls", "arguments": ""},
                }
            ]
        },
        {"tool_calls": [{"index": 0, "function": {"arguments": '{"p":1}'}}]},
        {},
    ]
    assert [c["choices"][0]["finish_reason"] for c in chunks[1:-1]] == [None] * 4 + ["tool_calls"]


def test_usage_comes_only_when_asked_for():
    """Without include_usage no chunk has usage; the flashrt block is on the finish chunk."""
    *chunks, _ = events(streamed([[TextDelta("a")]], call()))

    assert all("usage" not in chunk for chunk in chunks)
    assert ["flashrt" in chunk for chunk in chunks] == [False, False, True]


def test_the_usage_chunk_has_no_choices_and_all_counts():
    """With include_usage the last JSON chunk has usage, the flashrt block and `choices: []`."""
    *chunks, _ = events(streamed([[TextDelta("a")]], call(include_usage=True)))

    assert chunks[-1]["choices"] == []
    assert chunks[-1]["usage"] == {
        "prompt_tokens": 5,
        "completion_tokens": 7,
        "total_tokens": 12,
        "prompt_tokens_details": {"cached_tokens": 3},
        "completion_tokens_details": {"reasoning_tokens": 2},
    }
    assert ["flashrt" in chunk for chunk in chunks] == [False, False, False, True]


def test_token_ids_are_shown_only_when_asked_for():
    """flashrt_return_token_ids adds the ids of prompt and answer to the flashrt block."""
    outputs: list[list[Delta]] = [[TextDelta("a"), TextDelta("b")], [TextDelta("c")]]

    asked = buffered(outputs, call(ids=True))["flashrt"]
    not_asked = buffered(outputs, call())["flashrt"]

    assert asked["prompt_token_ids"] == [1, 2, 3, 4, 5]
    assert asked["completion_token_ids"] == [0, 1, 0]
    assert not_asked == {"prefix_action": "append", "cached_tokens": 3, "seed": 11}


def test_content_is_null_only_beside_calls():
    """A call without text has null content; an empty answer has an empty string."""
    empty = buffered([], call())["choices"][0]["message"]
    calls: list[list[Delta]] = [[ToolCallStart(0, "a", "f"), ToolCallEnd(0)]]
    calling = buffered(calls, call())["choices"][0]["message"]

    assert empty == {"role": "assistant", "content": ""}
    assert calling["content"] is None


def test_a_pulse_adds_nothing_and_says_how_far_things_are():
    """Pulses between pieces leave the joined message as it is."""
    (chunk,) = events(ChatStream(HEAD, call()).pulse({"total_tokens": 9}))
    assert chunk["choices"] == [{"index": 0, "delta": {}, "finish_reason": None}]
    assert chunk["flashrt"] == {"progress": {"total_tokens": 9}}


def test_a_body_leaves_out_a_call_that_never_ended():
    """A call cut off by the length must not be executed; a stream cannot take it back."""
    cut: list[list[Delta]] = [
        [ToolCallStart(0, "a", "f"), ToolCallArguments(0, "{}"), ToolCallEnd(0)],
        [ToolCallStart(1, "b", "g"), ToolCallArguments(1, '{"x": "rm ')],
    ]
    (choice,) = buffered(cut, call(), FinishReason.LENGTH)["choices"]

    assert [made["id"] for made in choice["message"]["tool_calls"]] == ["a"]
    assert choice["finish_reason"] == "length"
