"""Answers as deltas, and what a client makes of a stream of events."""

import json
from typing import Any

import attrs
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
from flashrt.chat.request import AgentRequest
from flashrt.protocols.answer import Head
from flashrt.protocols.fields import Call

PIN_WISHES = (None, True, False, 0, 1, 4096, 10**30)
"""Values of `flashrt_pin_prefix` that are served."""

NO_PINS = ("-1", "1.5", "1e3", '"7"', '"true"', "[1]", "{}", f"-{10**30}", "9" * 5000)
"""Values of `flashrt_pin_prefix`, as JSON, that are refused."""

HEAD = Head(request_id="r1", created=1_700_000_000, model="any-name")


@attrs.frozen
class FakeRecord:
    """A finished request's numbers."""

    prefix_action: str | None = "append"
    prompt_ids: tuple[int, ...] = (1, 2, 3, 4, 5)
    prompt_tokens: int = 5
    completion_tokens: int = 7
    cached_tokens: int = 3
    reasoning_tokens: int = 2
    lineage: tuple[tuple[int, bool, tuple[int, ...]], ...] = ((2, False, (9,)), (3, True, ()))

    def report(self) -> dict[str, object]:
        return {"prefix_action": "append", "cached_tokens": 3, "seed": 11}


def call(*, stream: bool = True, include_usage: bool = False, ids: bool = False) -> Call:
    """A chat request as far as an answer depends on it."""
    request = AgentRequest(model="any-name", messages=(), return_token_ids=ids)
    return Call(request, stream=stream, include_usage=include_usage)


def events(written: bytes) -> list[Any]:
    """The JSON values of a stream; the terminator as the string "[DONE]"."""
    lines = [line for line in written.decode().split("\n\n") if line.startswith("data: ")]
    payloads = [line.removeprefix("data: ") for line in lines]
    return [p if p == "[DONE]" else json.loads(p) for p in payloads]


def joined_message(chunks: list[Any]) -> dict[str, Any]:
    """What a chat client puts together from the chunks of a stream."""
    message: dict[str, Any] = {"content": "", "reasoning_content": "", "tool_calls": []}
    for chunk in chunks:
        for choice in chunk["choices"]:
            delta = choice["delta"]
            message["role"] = delta.get("role", message.get("role"))
            message["content"] += delta.get("content") or ""
            message["reasoning_content"] += delta.get("reasoning_content") or ""
            for piece in delta.get("tool_calls", ()):
                _add_call_piece(message["tool_calls"], piece)
            message["finish_reason"] = choice["finish_reason"]
    return message


def _add_call_piece(calls: list[Any], piece: dict[str, Any]) -> None:
    if "id" in piece:
        assert piece["index"] == len(calls), "calls are announced in their order"
        calls.append({"id": piece["id"], "type": piece["type"], "function": piece["function"]})
        return
    assert set(piece) == {"index", "function"}, "later pieces carry nothing else"
    assert set(piece["function"]) == {"arguments"}, "the name is not repeated"
    calls[piece["index"]]["function"]["arguments"] += piece["function"]["arguments"]


texts = st.text(max_size=8)


@st.composite
def answers(draw: st.DrawFn) -> list[list[Delta]]:
    """An answer as a reader writes it (thinking, text, then calls), cut into outputs anywhere."""
    deltas: list[Delta] = [ThinkingDelta(t) for t in draw(st.lists(texts, max_size=3))]
    deltas += [TextDelta(t) for t in draw(st.lists(texts, max_size=3))]
    for index in range(draw(st.integers(0, 3))):
        deltas.append(ToolCallStart(index, f"call_{index}", draw(st.sampled_from("fgh"))))
        deltas += [ToolCallArguments(index, t) for t in draw(st.lists(texts, max_size=3))]
        deltas.append(ToolCallEnd(index))
    outputs: list[list[Delta]] = [[]]
    for delta in deltas:
        if draw(st.booleans()):
            outputs.append([])
        outputs[-1].append(delta)
    return outputs


reasons = st.sampled_from(FinishReason)
