"""Messages answers: the order that clients need, and that a body is the same answer."""

import json
from typing import Any

import attrs
from anthropic.types import ErrorResponse
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
from flashrt.errors import EngineFailed
from flashrt.metrics.record import RequestRecord
from flashrt.protocols.fields import Call
from flashrt.protocols.messages_answer import MessagesBody, MessagesStream
from flashrt.protocols.messages_thinking import thought_of
from tests.protocols.messages_reader import Reader, named_events, whole
from tests.protocols.vocabulary import HEAD, FakeRecord, answers, call, reasons

RECORD = FakeRecord()
LIVE = attrs.evolve(HEAD, record=RECORD)
LONG = st.sampled_from([None, "STOP"])


@st.composite
def cut_answers(draw: st.DrawFn) -> list[list[Delta]]:
    """Answers, some of which end inside their last call."""
    outputs = draw(answers())
    if draw(st.booleans()):
        for output in outputs[::-1]:
            if output and isinstance(output[-1], ToolCallEnd):
                output.pop()
            if output:
                break
    return outputs


def asked(*, shows: bool = True, ids: bool = False) -> Call:
    return attrs.evolve(call(ids=ids), shows_thinking=shows)


def streamed(
    outputs: list[list[Delta]],
    wish: Call,
    reason: FinishReason = FinishReason.STOP,
    stop: str | None = None,
) -> bytes:
    writer = MessagesStream(LIVE, wish)
    written = writer.opening()
    for output in outputs:
        written += writer.pieces(output, range(len(output)))
        written += writer.pulse({"state": "DECODE"})
    return written + writer.ending(reason, RECORD, stop)


def buffered(
    outputs: list[list[Delta]],
    wish: Call,
    reason: FinishReason = FinishReason.STOP,
    stop: str | None = None,
) -> dict[str, Any]:
    writer = MessagesBody(HEAD, wish)
    for output in outputs:
        writer.add(output, range(len(output)))
    return whole(writer.ending(reason, RECORD, stop))


def executed(message: dict[str, Any], outputs: list[list[Delta]]) -> dict[str, Any]:
    """A streamed message with its inputs read, and without a call that was left open."""
    ends = {d.index for output in outputs for d in output if isinstance(d, ToolCallEnd)}
    content = []
    for block in message["content"]:
        if block["type"] == "tool_use":
            if int(block["id"].removeprefix("call_")) not in ends:
                continue
            try:
                value = json.loads(block["input"] or "{}")
            except ValueError:
                value = None
            good = isinstance(value, dict)
            block = {**block, "input": value if good else {"arguments": block["input"]}}
        content.append(block)
    return {**message, "content": content}


@given(cut_answers(), reasons, LONG, st.booleans(), st.booleans())
def test_a_stream_that_is_read_is_the_body(outputs, reason, stop, shows, ids):
    """Content, reason, stop string, usage and flashrt block; every event in its order."""
    wish = asked(shows=shows, ids=ids)

    message = Reader().read(streamed(outputs, wish, reason, stop))

    assert executed(message, outputs) == buffered(outputs, wish, reason, stop)


@given(cut_answers(), st.booleans())
def test_an_answer_cut_in_other_places_is_the_same_answer(outputs, shows):
    """Streamed and buffered."""
    joined = [[delta for output in outputs for delta in output]]
    wish = asked(shows=shows)

    assert buffered(outputs, wish) == buffered(joined, wish)
    one, other = (Reader().read(streamed(o, wish)) for o in (outputs, joined))
    assert one == other


@given(cut_answers(), st.booleans())
def test_the_thought_that_comes_back_is_the_thought(outputs, shows):
    """Shown or sealed, streamed or buffered: each block says what was thought in it."""
    wish = asked(shows=shows)
    thought = "".join(d.text for o in outputs for d in o if isinstance(d, ThinkingDelta))

    for message in (Reader().read(streamed(outputs, wish)), buffered(outputs, wish)):
        blocks = [block for block in message["content"] if block["type"] == "thinking"]
        assert "".join(thought_of(block) for block in blocks) == thought
        assert bool(blocks) is bool(thought)
        assert all(bool(block["thinking"]) is shows for block in blocks)


def test_the_start_waits_until_it_is_known_what_is_cached():
    """Pings are sent before, so that headers and bytes come at once."""
    record = RequestRecord("r1", created=0, enqueued_at=0.0, prompt_ids=(1, 2, 3, 4, 5))
    writer = MessagesStream(attrs.evolve(HEAD, record=record), asked())
    early = writer.opening() + writer.pulse({"state": "QUEUED"})
    record.prefix_action, record.cached_tokens = "append", 3

    late = writer.pulse({"state": "PREFILL"}) + writer.pulse({"state": "PREFILL"})

    assert [event["type"] for event in named_events(early)] == ["ping", "ping"]
    kinds = [event["type"] for event in named_events(late)]
    assert kinds == ["message_start", "ping", "ping"]
    start = named_events(late)[0]["message"]
    assert start["id"] == "msg_r1"
    assert start["model"] == "any-name"
    assert start["usage"]["input_tokens"] == 2
    assert start["usage"]["cache_read_input_tokens"] == 3


def test_usage_counts_the_prompt_in_two_parts_and_the_thinking():
    """What is cached is no input; nothing is ever created at a price."""
    assert buffered([[TextDelta("a")]], asked())["usage"] == {
        "input_tokens": 2,
        "cache_read_input_tokens": 3,
        "cache_creation_input_tokens": 0,
        "output_tokens": 7,
        "output_tokens_details": {"thinking_tokens": 2},
    }


def test_each_reason_has_its_word():
    """A stop string is named; where something else ended the answer, it did not."""
    said = {
        (reason, stop): buffered([], asked(), reason, stop)
        for reason in FinishReason
        for stop in (None, "S")
    }
    words = {of: (body["stop_reason"], body["stop_sequence"]) for of, body in said.items()}
    assert words == {
        (FinishReason.STOP, None): ("end_turn", None),
        (FinishReason.STOP, "S"): ("stop_sequence", "S"),
        (FinishReason.LENGTH, None): ("max_tokens", None),
        (FinishReason.LENGTH, "S"): ("max_tokens", None),
        (FinishReason.TOOL_CALLS, None): ("tool_use", None),
        (FinishReason.TOOL_CALLS, "S"): ("tool_use", None),
    }


def test_a_call_that_was_cut_is_stopped_in_a_stream_and_not_in_a_body():
    """A client must not execute it."""
    outputs: list[list[Delta]] = [
        [TextDelta("a"), ToolCallStart(0, "call_0", "ls"), ToolCallArguments(0, '{"p":')]
    ]
    message = Reader().read(streamed(outputs, asked(), FinishReason.LENGTH))
    assert message["stop_reason"] == "max_tokens"
    assert message["content"][1]["input"] == '{"p":'
    body = buffered(outputs, asked(), FinishReason.LENGTH)
    assert body["content"] == [{"type": "text", "text": "a"}]


def test_a_failure_ends_the_stream_wherever_it_comes():
    """Before the start and inside a block; nothing is closed, and the type is the SDK's."""
    writer = MessagesStream(LIVE, asked())
    reader = Reader()
    first = writer.opening() + MessagesStream(LIVE, asked()).failure(EngineFailed("It broke."))
    assert [event["type"] for event in named_events(first)] == ["ping", "error"]
    written = writer.opening() + writer.pieces([TextDelta("a")], [1])
    written += writer.failure(EngineFailed("It broke."))
    for event in named_events(written):
        reader.take(event)
    assert reader.error is not None
    ErrorResponse.model_validate(reader.error, strict=True)
    assert reader.error["error"] == {"type": "api_error", "message": "It broke."}
    assert reader.error["request_id"] == "r1"
