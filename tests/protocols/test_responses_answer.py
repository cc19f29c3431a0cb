"""Responses answers: the laws of the stream, and that a body is the same answer."""

import json
from itertools import pairwise
from typing import Any

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from openai.types.responses import Response

from flashrt.chat.deltas import (
    Delta,
    FinishReason,
    TextDelta,
    ThinkingDelta,
    ToolCallArguments,
    ToolCallEnd,
    ToolCallStart,
)
from flashrt.errors import AnswerCancelled, EngineFailed, QueueFull
from flashrt.protocols.responses import ResponsesCall, read_responses
from flashrt.protocols.responses_answer import LAST, ResponsesBody, ResponsesStream
from flashrt.protocols.responses_thought import unsealed
from tests.protocols.responses_reader import events, read, text_of
from tests.protocols.test_responses import NOTHING
from tests.protocols.vocabulary import HEAD, FakeRecord, reasons, texts

TOOLS = [
    {"type": "function", "name": "f"},
    {"type": "custom", "name": "patch"},
    {
        "type": "namespace",
        "name": "many",
        "description": "d",
        "tools": [{"type": "function", "name": "g"}],
    },
]
LIVE = attrs.evolve(HEAD, record=FakeRecord())

WISHES = [
    {},
    {"reasoning": {"summary": "auto"}},
    {"include": ["reasoning.encrypted_content"], "store": False},
    {"reasoning": {"summary": "auto"}, "include": ["reasoning.encrypted_content"]},
]


def call(**wish: Any) -> ResponsesCall:
    return read_responses(json.dumps({"input": "hi", "tools": TOOLS, **wish}).encode(), NOTHING)


def streamed(
    outputs: list[list[Delta]], asked: ResponsesCall, reason: FinishReason = FinishReason.STOP
) -> bytes:
    writer = ResponsesStream(LIVE, asked)
    written = writer.opening()
    for output in outputs:
        written += writer.pieces(output, range(len(output)))
    return written + writer.ending(reason, FakeRecord())


def buffered(
    outputs: list[list[Delta]], asked: ResponsesCall, reason: FinishReason = FinishReason.STOP
) -> dict[str, Any]:
    writer = ResponsesBody(LIVE, asked)
    for output in outputs:
        writer.add(output, range(len(output)))
    return json.loads(writer.ending(reason, FakeRecord()))


@st.composite
def said(draw: st.DrawFn) -> list[list[Delta]]:
    """Thinking, text and calls in any order, calls left open among them, cut anywhere."""
    deltas: list[Delta] = []
    calls = 0
    for kind in draw(st.lists(st.sampled_from(["think", "say", "call", "custom"]), max_size=5)):
        pieces = draw(st.lists(texts, max_size=3))
        if kind == "think":
            deltas += map(ThinkingDelta, pieces)
        elif kind == "say":
            deltas += map(TextDelta, pieces)
        else:
            name = draw(
                st.sampled_from(["f", "many__g", "unknown"] if kind == "call" else ["patch"])
            )
            arguments = json.dumps({"input": "".join(pieces)}, ensure_ascii=draw(st.booleans()))
            cuts = sorted(draw(st.lists(st.integers(0, len(arguments)), max_size=3)))
            bounds = [0, *cuts, len(arguments)]
            deltas.append(ToolCallStart(calls, f"call_{calls}", name))
            deltas += [ToolCallArguments(calls, arguments[a:b]) for a, b in pairwise(bounds)]
            deltas += [ToolCallEnd(calls)] if draw(st.booleans()) else []
            calls += 1
    outputs: list[list[Delta]] = [[]]
    for delta in deltas:
        if draw(st.booleans()):
            outputs.append([])
        outputs[-1].append(delta)
    return outputs


@settings(max_examples=60)
@given(said(), reasons, st.sampled_from(WISHES))
def test_every_stream_keeps_the_order_and_is_the_body(outputs, reason, wish):
    """Whatever is said and however it is cut: indices, deltas, done and final response agree."""
    asked = call(**wish)

    response = read(streamed(outputs, asked, reason))

    whole = [[delta for output in outputs for delta in output]]
    assert response == buffered(outputs, asked, reason) == read(streamed(whole, asked, reason))
    Response.model_validate(response)
    length = reason is FinishReason.LENGTH
    assert response["status"] == ("incomplete" if length else "completed")


@given(said(), st.sampled_from(WISHES))
def test_what_was_said_is_in_the_items_and_nothing_else(outputs, wish):
    """Thinking, text and calls, each in its own order, and with what each call was given."""
    deltas = [delta for output in outputs for delta in output]
    output = buffered(outputs, call(**wish))["output"]

    def of(*kinds: str) -> str:
        return "".join(text_of(item) for item in output if item["type"] in kinds)

    assert of("reasoning") == "".join(d.text for d in deltas if isinstance(d, ThinkingDelta))
    assert of("message") == "".join(d.text for d in deltas if isinstance(d, TextDelta))
    starts = [d for d in deltas if isinstance(d, ToolCallStart)]
    ended = {d.index for d in deltas if isinstance(d, ToolCallEnd)}
    calls = [item for item in output if "call_id" in item]
    assert [item["call_id"] for item in calls] == [start.call_id for start in starts]
    for start, item in zip(starts, calls, strict=True):
        arguments = "".join(
            d.text for d in deltas if isinstance(d, ToolCallArguments) and d.index == start.index
        )
        assert item["status"] == ("completed" if start.index in ended else "incomplete")
        if start.name == "patch" and start.index in ended:
            assert item["input"] == json.loads(arguments)["input"]
        elif start.name != "patch":
            assert item["arguments"] == arguments


def test_the_items_of_a_turn_in_the_order_in_which_they_were_said():
    """Ids have the request's; a call says its group; a custom call has its text."""
    outputs: list[list[Delta]] = [
        [ThinkingDelta("hm"), TextDelta("so")],
        [ToolCallStart(0, "a", "many__g"), ToolCallArguments(0, "{}"), ToolCallEnd(0)],
        [ToolCallStart(1, "b", "patch"), ToolCallArguments(1, '{"input":"x\\ny"}'), ToolCallEnd(1)],
    ]
    response = read(streamed(outputs, call(), FinishReason.TOOL_CALLS))

    assert response["id"] == "resp_r1"
    assert response["output"] == [
        {
            "type": "reasoning",
            "id": "rs_r1_0",
            "status": "completed",
            "summary": [],
            "content": [{"type": "reasoning_text", "text": "hm"}],
        },
        {
            "type": "message",
            "id": "msg_r1_1",
            "status": "completed",
            "role": "assistant",
            "content": [{"type": "output_text", "text": "so", "annotations": [], "logprobs": []}],
        },
        {
            "type": "function_call",
            "id": "fc_r1_2",
            "status": "completed",
            "call_id": "a",
            "name": "g",
            "namespace": "many",
            "arguments": "{}",
        },
        {
            "type": "custom_tool_call",
            "id": "ctc_r1_3",
            "status": "completed",
            "call_id": "b",
            "name": "patch",
            "input": "x\ny",
        },
    ]
    assert response["usage"] == {
        "input_tokens": 5,
        "input_tokens_details": {"cached_tokens": 3, "cache_write_tokens": 0},
        "output_tokens": 7,
        "output_tokens_details": {"reasoning_tokens": 2},
        "total_tokens": 12,
    }
    assert response["flashrt"] == {"prefix_action": "append", "cached_tokens": 3, "seed": 11}


def test_a_summary_is_all_of_the_thinking_and_a_seal_has_it_exactly():
    """With a summary there is no content beside it: clients that show both would show it twice."""
    asked = call(reasoning={"summary": "detailed"}, include=["reasoning.encrypted_content"])
    (item, _) = read(streamed([[ThinkingDelta("\n a\u00fc")]], asked))["output"]

    assert item["summary"] == [{"type": "summary_text", "text": "\n a\u00fc"}]
    assert "content" not in item
    assert unsealed(item["encrypted_content"]) == "\n a\u00fc"


def test_a_call_that_was_cut_is_never_done():
    """Codex executes what `output_item.done` brings, and looks at no status."""
    outputs: list[list[Delta]] = [[ToolCallStart(0, "a", "f"), ToolCallArguments(0, '{"x":"rm ')]]
    written = streamed(outputs, call(), FinishReason.LENGTH)

    assert "response.output_item.done" not in [event["type"] for event in events(written)]
    response = read(written)
    assert response["output"][0]["status"] == "incomplete"
    assert response["incomplete_details"] == {"reason": "max_output_tokens"}


@pytest.mark.parametrize("outputs", [[], [[ThinkingDelta("hm")]], [[TextDelta("")]]])
def test_an_answer_without_a_word_has_an_empty_message(outputs):
    """Clients look for one, and the conversation has a turn of the assistant's as in chat."""
    message = read(streamed(outputs, call()))["output"][-1]

    assert (message["type"], text_of(message)) == ("message", "")


def test_a_pulse_is_an_event_of_the_protocol_and_says_how_far_things_are():
    """Codex drops a stream that is silent for 300 s, comments or not."""
    writer = ResponsesStream(LIVE, call())
    written = writer.opening() + writer.pulse({"total_tokens": 9})
    written += writer.pieces([TextDelta("a")], [0]) + writer.pulse({"total_tokens": 9})
    written += writer.ending(FinishReason.STOP, FakeRecord())

    assert read(written)["status"] == "completed"
    pulses = [e["response"] for e in events(written) if e["type"] == "response.in_progress"][1:]
    assert [pulse["flashrt"] for pulse in pulses] == [{"progress": {"total_tokens": 9}}] * 2


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (EngineFailed("It broke."), "server_error"),
        (ValueError("secret"), "server_error"),
        (QueueFull("full"), "rate_limit_exceeded"),
    ],
)
@settings(max_examples=20)
@given(outputs=said())
def test_a_failure_is_one_event_and_takes_nothing_back(outputs, error, code):
    """The output so far stays, what was open is incomplete, and no terminator follows."""
    writer = ResponsesStream(LIVE, call())
    written = writer.opening()
    for output in outputs:
        written += writer.pieces(output, range(len(output)))
    written += writer.failure(error)

    response = read(written)
    assert response["status"] == "failed"
    assert response["error"]["code"] == code
    assert "secret" not in response["error"]["message"]
    assert b"[DONE]" not in written


@settings(max_examples=20)
@given(said())
def test_a_cancelled_answer_is_no_failure(outputs):
    """Its stream ends like one that was cut, so that nobody asks again; the status says why."""
    writer = ResponsesStream(LIVE, call())
    written = writer.opening()
    for output in outputs:
        written += writer.pieces(output, range(len(output)))
    written += writer.failure(AnswerCancelled("x"))

    response = read(written)
    assert events(written)[-1]["type"] == "response.incomplete"
    assert (response["status"], response["error"]) == ("cancelled", None)
    assert response["incomplete_details"] is None


def test_the_response_is_kept_once_when_it_is_over():
    """As it was told; and it repeats what was asked for."""
    kept: list[Any] = []
    wish = {"instructions": "be brief", "metadata": {"a": "b"}, "max_output_tokens": 9}
    writer = ResponsesStream(LIVE, call(**wish), kept.append)
    writer.opening()
    writer.pieces([TextDelta("a")], [0])
    assert kept == []
    last = events(writer.ending(FinishReason.STOP, FakeRecord()))[-1]["response"]

    assert len(kept) == 1
    assert {name: last[name] for name in wish} == wish
    assert [tool["type"] for tool in last["tools"]] == ["function", "custom", "namespace"]


def test_every_status_that_ends_has_its_event():
    """And no other."""
    assert set(LAST) == {"completed", "incomplete", "cancelled", "failed"}


class Letters:
    """A vocabulary of single bytes; 0 is a control token."""

    def id_to_bytes(self, token_id: int) -> bytes:
        return bytes([token_id])

    def control_literal(self, token_id: int) -> str | None:
        return "<0>" if token_id == 0 else None


@attrs.frozen
class Logprobs:
    chosen: float = -1.0
    top: tuple[tuple[int, float], ...] = ((65, -1.0),)


def test_logprobs_are_those_of_visible_text():
    """Of an output that shows text, with what was held back before; not of thinking."""
    head = attrs.evolve(LIVE, token_texts=Letters())
    writer = ResponsesStream(head, call(include=["message.output_text.logprobs"], top_logprobs=1))
    written = writer.opening()
    for delta, ids in (([ThinkingDelta("T")], b"T"), ([], b"\0a"), ([TextDelta("ab")], b"b")):
        written += writer.pieces(delta, tuple(ids), [Logprobs()] * len(ids))
    written += writer.ending(FinishReason.STOP, FakeRecord())

    message = read(written)["output"][-1]
    assert [one["token"] for one in message["content"][0]["logprobs"]] == ["a", "b"]
    deltas = [e for e in events(written) if e["type"] == "response.output_text.delta"]
    assert [one["token"] for one in deltas[0]["logprobs"]] == ["a", "b"]
