"""Conversations as a whole, and how a client of each protocol would send them."""

import json
from typing import Any

import attrs
from hypothesis import strategies as st

from flashrt.protocols.responses_thought import sealed

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=6).filter(
    lambda text: "<think>" not in text
)
NAMES = ("f", "many__g", "patch")


@attrs.frozen
class CallSaid:
    """A call and its result."""

    call_id: str
    name: str
    arguments: dict[str, Any]
    result: str


@attrs.frozen
class Turn:
    """One turn: of the user's, or the assistant's."""

    role: str
    text: str
    thought: str = ""
    calls: tuple[CallSaid, ...] = ()


@st.composite
def conversations(draw: st.DrawFn) -> list[Turn]:
    """Any conversation that begins with a user; assistants take turns with what others say."""
    turns = [Turn("user", draw(TEXT))]
    for i in range(draw(st.integers(0, 4))):
        calls = []
        for j in range(draw(st.integers(0, 2))):
            name = draw(st.sampled_from(NAMES))
            key = "input" if name == "patch" else "k"
            calls.append(CallSaid(f"call_{i}_{j}", name, {key: draw(TEXT)}, draw(TEXT)))
        turns.append(Turn("assistant", draw(TEXT), draw(TEXT), tuple(calls)))
        if not calls or draw(st.booleans()):
            turns.append(Turn(draw(st.sampled_from(["user", "developer"])), draw(TEXT)))
    return turns


def as_chat(turns: list[Turn]) -> list[dict[str, Any]]:
    """Messages of Chat Completions."""
    messages: list[dict[str, Any]] = []
    for turn in turns:
        message: dict[str, Any] = {"role": turn.role, "content": turn.text}
        if turn.thought:
            message["reasoning_content"] = turn.thought
        if turn.calls:
            message["tool_calls"] = [
                {
                    "id": call.call_id,
                    "type": "function",
                    "function": {"name": call.name, "arguments": json.dumps(call.arguments)},
                }
                for call in turn.calls
            ]
        messages.append(message)
        messages += [
            {"role": "tool", "tool_call_id": call.call_id, "content": call.result}
            for call in turn.calls
        ]
    return messages


@st.composite
def as_items(draw: st.DrawFn, turns: list[Turn]) -> list[dict[str, Any]]:
    """Input items of Responses, in one of the spellings of real clients."""
    items: list[dict[str, Any]] = []
    for n, turn in enumerate(turns):
        if turn.thought:
            items.append(draw(_reasoning(turn.thought, n)))
        if turn.text or turn.role != "assistant" or not (turn.thought or turn.calls):
            items.append(draw(_message(turn, n)))
        calls = [draw(_call(call, n)) for call in turn.calls]
        results = [_result(call, draw(st.booleans())) for call in turn.calls]
        items += [*calls, *draw(st.permutations(results))]
    return items


@st.composite
def _reasoning(draw: st.DrawFn, thought: str, n: int) -> dict[str, Any]:
    way = draw(st.sampled_from(["seal", "content", "summary", "all", "foreign"]))
    item: dict[str, Any] = {"type": "reasoning", "summary": []}
    if way != "seal" or draw(st.booleans()):
        item["id"] = f"rs_{n}"
    if way in ("seal", "all"):
        item["encrypted_content"] = sealed(thought)
    if way == "foreign":
        item["encrypted_content"] = "gAAAAABm"
    if way in ("content", "foreign"):
        item["content"] = [{"type": "reasoning_text", "text": thought}]
    if way in ("summary", "all"):
        # What is sealed counts: a client may show, and send, less.
        shown = thought if way == "summary" else "short"
        item["summary"] = [{"type": "summary_text", "text": shown}]
    return item


@st.composite
def _message(draw: st.DrawFn, turn: Turn, n: int) -> dict[str, Any]:
    kind = "output_text" if turn.role == "assistant" else "input_text"
    cut = draw(st.integers(0, len(turn.text)))
    parts = [{"type": kind, "text": text} for text in (turn.text[:cut], turn.text[cut:])]
    content = draw(st.sampled_from([turn.text, parts, [{"type": "text", "text": turn.text}]]))
    item: dict[str, Any] = {"role": turn.role, "content": content}
    if draw(st.booleans()):
        item |= {"type": "message", "id": f"msg_{n}", "status": "completed"}
    return item


@st.composite
def _call(draw: st.DrawFn, call: CallSaid, n: int) -> dict[str, Any]:
    item: dict[str, Any] = {"call_id": call.call_id, "name": call.name, "status": "completed"}
    if call.name == "patch":
        return {**item, "type": "custom_tool_call", "input": call.arguments["input"]}
    indent = draw(st.sampled_from([None, 1]))
    item |= {"type": "function_call", "id": f"fc_{n}"}
    item["arguments"] = json.dumps(call.arguments, indent=indent, ensure_ascii=draw(st.booleans()))
    if call.name == "many__g":
        item |= {"name": "g", "namespace": "many"}
    return item


def _result(call: CallSaid, in_parts: bool) -> dict[str, Any]:
    kind = "custom_tool_call" if call.name == "patch" else "function_call"
    output: Any = [{"type": "input_text", "text": call.result}] if in_parts else call.result
    return {"type": f"{kind}_output", "call_id": call.call_id, "output": output}
